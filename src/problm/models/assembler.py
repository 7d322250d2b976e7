r"""Expressions to programs for the tape: lowering, fusion, registers.

1. **Lowering.** Every expression that differs from row to row is written as ``scalar * vector``: scalars are
   factored out of products and quotients and multiplied once per block (``a * exp(u) * (x - m) / s`` becomes
   ``(a / s) * (e * t)``), divisions become products with a shared reciprocal, sums a chain from left to right.
   The vector parts are hash-consed again, so derivatives share products that differ only by a scalar.
2. **Fusion.** A product used once, in a sum or an exponential, becomes part of that instruction; ``sin`` and ``cos``
   of the same argument become one instruction.
3. **Registers.** Instructions are ordered so that arguments come before results, those of the residuals first; a
   register is reused after the last use of its contents. Outputs are computed in place.

Rounding therefore differs from NumPy's in the last digit or two; the order of sums is the user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..jit.addresses import address_of
from ..kernels import tape
from .expression import Expression, constant, make
from .node import topological

_ZERO, _ONE = constant(0.0), constant(1.0)

Term = tuple[Expression, int | None]
"""A scalar times a vector node, or the scalar alone."""


@dataclass(frozen=True)
class Program:
    """What the tape reads; see `problm.kernels.tape`."""

    code: NDArray[np.int64]
    constants: NDArray[np.float64]
    n_parameters: int
    components: int


@dataclass(frozen=True)
class _Node:
    op: str
    vectors: tuple[int, ...] = ()
    scalars: tuple[int, int, int] = (_ZERO.serial, _ZERO.serial, _ZERO.serial)
    """Serial numbers of the scalar expressions s, t and u of the instruction."""
    column: int = 0


@dataclass
class _Lowering:
    """Vector nodes made from expressions, each once."""

    uses: Counter[int]
    nodes: list[_Node] = field(default_factory=list)
    scalars: dict[int, Expression] = field(default_factory=lambda: {_ZERO.serial: _ZERO, _ONE.serial: _ONE})
    _known: dict[_Node, int] = field(default_factory=dict)
    _terms: dict[int, Term] = field(default_factory=dict)

    def node(
        self,
        op: str,
        vectors: tuple[int, ...] = (),
        s: Expression = _ZERO,
        t: Expression = _ZERO,
        u: Expression = _ZERO,
        column: int = 0,
    ) -> int:
        self.scalars |= {s.serial: s, t.serial: t, u.serial: u}
        node = _Node(op, vectors, (s.serial, t.serial, u.serial), column)
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def term(self, root: Expression) -> Term:
        """The expression as scalar times vector."""
        for e in topological([root]):
            if e.serial not in self._terms:
                self._terms[e.serial] = self._lower(e)
        return self._terms[root.serial]

    def vector(self, term: Term) -> int:
        """The node whose value is the whole term."""
        scalar, v = term
        if v is None:
            return self.node("fill", (), scalar)
        return v if scalar is _ONE else self.node("lin1", (v,), scalar)

    def _lower(self, e: Expression) -> Term:
        if not e.rowwise:
            return e, None
        if e.op == "variable":
            return _ONE, self.node("variable", column=int(e.value))
        if e.op in ("add", "sub"):
            return self._sum(self._items(e, _ONE, top=True))
        terms = [self._terms[a.serial] for a in e.args]
        if e.op == "neg":
            return make("neg", terms[0][0]), terms[0][1]
        if e.op == "mul":
            return self._product(*terms)
        if e.op == "div":
            return self._product(terms[0], self._reciprocal(terms[1]))
        if e.op == "tan":
            sine, cosine = (self._function(op, terms[0]) for op in ("sin", "cos"))
            return self._product((_ONE, sine), self._reciprocal((_ONE, cosine)))
        if e.op in tape.UNARY:
            return _ONE, self._function(e.op, terms[0])
        if e.op == "pow" and terms[1][1] is None:
            v, s, u = self._affine(terms[0])
            return _ONE, self.node("power", (v,), s, terms[1][0], u)
        return _ONE, self.node(e.op, tuple(self.vector(t) for t in terms), _ONE)

    def _affine(self, term: Term) -> tuple[int, Expression, Expression]:
        """``(v, s, u)`` with the term equal to ``s v + u``: looks through a sum with a scalar."""
        scalar, v = term
        assert v is not None
        if self.nodes[v].op == "lin1":
            s, _, u = (self.scalars[k] for k in self.nodes[v].scalars)
            return self.nodes[v].vectors[0], make("mul", scalar, s), make("mul", scalar, u)
        return v, scalar, _ZERO

    def _function(self, op: str, term: Term) -> int:
        v, s, u = self._affine(term)
        return self.node(op, (v,), s, u=u)

    def _product(self, a: Term, b: Term) -> Term:
        scalar = make("mul", a[0], b[0])
        if a[1] is None or b[1] is None:
            return scalar, b[1] if a[1] is None else a[1]
        return scalar, self.node("prod", (min(a[1], b[1]), max(a[1], b[1])), _ONE)

    def _reciprocal(self, term: Term) -> Term:
        scalar, v = term
        inverse = make("div", _ONE, scalar)
        if v is None:
            return inverse, None
        v, s, u = self._affine((_ONE, v))
        return inverse, self.node("reciprocal", (v,), s, _ONE, u)

    def _items(self, e: Expression, sign: Expression, top: bool = False) -> list[Term]:
        """Terms of a sum, from left to right; a sum used elsewhere too stays one term."""
        if e.op in ("add", "sub") and (top or self.uses[e.serial] == 1):
            right = make("neg", sign) if e.op == "sub" else sign
            return self._items(e.args[0], sign) + self._items(e.args[1], right)
        if e.op == "neg" and self.uses[e.serial] == 1:
            return self._items(e.args[0], make("neg", sign))
        scalar, v = self._terms[e.serial]
        return [(make("mul", sign, scalar), v)]

    def _sum(self, items: Sequence[Term]) -> Term:
        total: Term | None = None
        extra = _ZERO
        for scalar, v in items:
            if v is None:
                extra = make("add", extra, scalar)
            elif total is None:
                total = (scalar, v)
            else:
                assert total[1] is not None
                total = (_ONE, self.node("lin2", (total[1], v), total[0], scalar, extra))
                extra = _ZERO
        assert total is not None
        assert total[1] is not None
        if extra is _ZERO:
            return total
        return _ONE, self.node("lin1", (total[1],), total[0], u=extra)


def _fused(nodes: list[_Node], roots: Sequence[int]) -> dict[int, _Node]:
    """The nodes that the roots need; products and reciprocals that are used once are merged into their user."""
    uses: Counter[int] = Counter(roots)
    stack, seen = list(roots), set(roots)
    while stack:
        for v in nodes[stack.pop()].vectors:
            uses[v] += 1
            if v not in seen:
                seen.add(v)
                stack.append(v)
    zero, one = _ZERO.serial, _ONE.serial
    plain = (one, zero, zero)

    def product(v: int) -> tuple[int, ...] | None:
        node = nodes[v]
        return node.vectors if node.op == "prod" and node.scalars == plain and uses[v] == 1 else None

    result: dict[int, _Node] = {}
    for v in sorted(seen):
        node = nodes[v]
        s, t, u = node.scalars
        if node.op == "lin1" and (pair := product(node.vectors[0])):
            node = _Node("prod", pair, (s, zero, u))
        elif node.op == "lin1" and u == zero and uses[node.vectors[0]] == 1:
            inner = nodes[node.vectors[0]]
            if inner.op == "reciprocal":
                node = _Node("reciprocal", inner.vectors, (inner.scalars[0], s, inner.scalars[2]))
        elif node.op == "exp" and (pair := product(node.vectors[0])):
            node = _Node("exp prod", pair, (s, zero, u))
        elif node.op == "lin2" and (pair := product(node.vectors[1])):
            node = _Node("madd", (*pair, node.vectors[0]), (t, s, u))
        elif node.op == "lin2" and (pair := product(node.vectors[0])):
            node = _Node("madd", (*pair, node.vectors[1]), (s, t, u))
        result[v] = node
    return result


_OPCODES = {
    "fill": tape.FILL, "lin1": tape.LIN1, "lin2": tape.LIN2, "prod": tape.PROD, "madd": tape.MADD,
    "reciprocal": tape.RECIPROCAL, "power": tape.POWER, "where": tape.WHERE, "sin cos": tape.SINCOS,
    "exp prod": tape.EXP_PROD, "w_real w_imag": tape.W, **tape.CODES,
}  # fmt: skip
# Pairs computed by one instruction: the second result goes to the slot c.
_PAIRS = {"sin": "cos", "cos": "sin", "w_real": "w_imag", "w_imag": "w_real"}


def _ordered(nodes: dict[int, _Node], roots: Sequence[int], done: set[int]) -> list[int]:
    """Nodes that the roots need and that are not done, arguments first."""
    order = []
    stack = [(v, False) for v in reversed(roots)]
    while stack:
        v, ready = stack.pop()
        if v in done:
            continue
        if ready or nodes[v].op == "variable":
            done.add(v)
            order.append(v)
        else:
            stack.append((v, True))
            stack.extend((a, False) for a in reversed(nodes[v].vectors) if a not in done)
    return order


@dataclass
class _Registers:
    """Slots of the machine's memory, the lowest free one first."""

    used: int = 0
    free: list[int] = field(default_factory=list)

    def take(self) -> int:
        if not self.free:
            self.free.append(self.used)
            self.used += 1
        self.free.sort(reverse=True)
        return 4 * self.free.pop() + 2

    def give(self, slot: int) -> None:
        if slot & 3 == 2:
            self.free.append(slot >> 2)


def assemble(residuals: Sequence[Expression], jacobian: Sequence[Sequence[Expression]], n_parameters: int) -> Program:
    """The program for residuals and their derivatives.

    Parameters
    ----------
    residuals
        The p residuals of a row.
    jacobian
        Derivatives of each residual with respect to the parameters, p sequences of d, from `derivatives`.
    n_parameters
        Length q of theta.
    """
    outputs = [*residuals, *(g for row in jacobian for g in row)]
    uses = Counter(a.serial for e in topological(outputs) for a in e.args)
    uses.update(e.serial for e in outputs)
    lowering = _Lowering(uses)
    roots = [lowering.vector(lowering.term(e)) for e in outputs]
    nodes = _fused(lowering.nodes, roots)
    done: set[int] = set()
    order = _ordered(nodes, roots[: len(residuals)], done)
    n_value = len(order)
    order += _ordered(nodes, roots, done)
    instructions, split, registers = _allocate(nodes, order, n_value, roots, len(residuals))
    return _encode(instructions, split, registers, lowering.scalars, n_parameters, len(residuals))


Instruction = tuple[int, list[int], tuple[int, int, int]]
"""Opcode, slots of the result and of a, b, c, and scalars s, t, u as serial numbers."""


def _allocate(
    nodes: dict[int, _Node], order: list[int], n_value: int, roots: Sequence[int], p: int
) -> tuple[list[Instruction], int, int]:
    last_use = {a: k for k, v in enumerate(order) for a in nodes[v].vectors}
    home: dict[int, int] = {}
    copies: list[tuple[int, int]] = []
    for k, v in enumerate(roots):
        if v in home or nodes[v].op == "variable":
            copies.append((v, k))
        else:
            home[v] = 4 * k + 1
    slots = {v: 4 * nodes[v].column for v in nodes if nodes[v].op == "variable"}
    registers = _Registers()
    instructions: list[Instruction] = []
    split = 0

    def copy(part: range) -> None:
        plain = (_ONE.serial, _ZERO.serial, _ZERO.serial)
        for v, k in copies:
            if k in part:
                instructions.append((tape.LIN1, [4 * k + 1, slots[v], slots[v], slots[v]], plain))

    partner = {}
    for v, node in nodes.items():
        if node.op in _PAIRS:
            for other, candidate in nodes.items():
                if (
                    candidate.op == _PAIRS[node.op]
                    and candidate.vectors == node.vectors
                    and candidate.scalars == node.scalars
                ):
                    partner[v] = other
    for k, v in enumerate(order):
        if k == n_value:
            copy(range(p))
            split = len(instructions)
        node = nodes[v]
        if node.op == "variable" or v in slots:
            continue
        both = [v]
        name = node.op
        if name in ("w_real", "w_imag") or v in partner:
            first, second = (name, _PAIRS[name]) if name in ("sin", "w_real") else (_PAIRS[name], name)
            name = f"{first} {second}"
            both = [v, partner.get(v, -1)] if node.op == first else [partner.get(v, -1), v]
        for result in both:
            slots[result] = home.get(result) or registers.take()
        inputs = [slots[a] for a in node.vectors]
        target = slots[both[0]]
        if len(both) == 2:
            inputs = [inputs[0], inputs[-1], slots[both[1]]]
        inputs += [inputs[0] if inputs else target] * (3 - len(inputs))
        instructions.append((_OPCODES[name], [target, *inputs], node.scalars))
        if -1 in both:
            registers.give(slots.pop(-1))
        for a in set(node.vectors):
            if last_use[a] == k:
                registers.give(slots[a])
    if n_value == len(order):
        copy(range(p))
        split = len(instructions)
    copy(range(p, len(roots)))
    return instructions, split, registers.used


def _encode(
    instructions: list[Instruction], split: int, registers: int, scalars: dict[int, Expression], n_parameters: int,
    components: int,
) -> Program:  # fmt: skip
    value = [scalars[s] for _, _, three in instructions[:split] for s in three]
    rest = [scalars[s] for _, _, three in instructions[split:] for s in three]
    ordered = topological([*value, *rest])
    constants = [e for e in ordered if e.op == "constant"]
    computed = [e for e in ordered if e.op not in ("constant", "parameter")]
    place = {e.serial: k for k, e in enumerate(constants)}
    place |= {e.serial: len(constants) + int(e.value) for e in ordered if e.op == "parameter"}
    first = len(constants) + n_parameters
    place |= {e.serial: first + k for k, e in enumerate(computed)}
    for_value = {e.serial for e in topological(value)}
    n_value = sum(e.serial in for_value for e in computed)
    n_scalars = -(-(first + len(computed)) // 8) * 8  # registers begin where a cache line begins
    code = [len(computed), n_value, len(instructions), split, len(constants), n_scalars, registers, 0]
    for e in computed:
        inputs = [place[a.serial] for a in e.args]
        op = tape.SCALAR_CODES[e.op]
        code += [op, place[e.serial], *inputs, *[inputs[0]] * (3 - len(inputs)), _scalar_address(op)]
    for op, where, three in instructions:
        code += [op, *where, *(place[s] for s in three), _vector_address(op)]
    return Program(np.array(code, dtype=np.int64), np.array([e.value for e in constants]), n_parameters, components)


def _vector_address(op: int) -> int:
    """Address of the function that a vector instruction calls; 0 for the machine's own instructions."""
    if op in tape.OWN:
        return 0
    from ..kernels.tape_functions import FAMILIES, library

    return address_of(FAMILIES.get(op, library), tape.VECTOR)


def _scalar_address(op: int) -> int:
    """Like `_vector_address`, for a scalar instruction."""
    if op in (tape.ADD, tape.SUB, tape.MUL, tape.DIV, tape.NEG):
        return 0
    from ..kernels.tape_functions import SCALARS, scalar

    return address_of(SCALARS.get(op, scalar), tape.SCALAR)
