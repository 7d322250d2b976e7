"""Cost of a residual in the compiled kernels, compared with the limits of the machine.

    python -m bench.studies.kernel_costs [--rows 1000000] [-o bench/results]

Each built-in model is linearised (cost, gradient, J^T J) and its cost summed over all rows, on one thread, by CPU time.
The limits are measured in the same run: reading memory (the sum of an array that is in no cache), STREAM's triad, and
multiply-adds in registers. A kernel cannot take less than the larger of

- its 16 bytes a row (two columns of double precision) at the speed of reading,
- its floating-point operations at the peak of multiply-adds.

Operations are those of the model's program, a multiply-add being two, with the functions as their vector code has them,
and for a linearisation the (d + 1)(d + 2) / 2 multiply-adds of the products. Divisions and square roots count as one,
though no machine does them at that rate, and loads and stores from the first cache are free: the limit is a true lower
bound, not an estimate.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..harness import record
from ..harness.run import single_thread
from ..harness.summary import markdown_table

SEED = 0
_LANES = 4
_CHAINS = 12
_COST = 3
"""Operations for the square, half and sum of a residual."""
_FUNCTIONS = {"exp": 34, "tanh": 49, "log": 31, "log_or_zero": 31, "arctan": 33, "sqrt": 1}
"""Operations per value of `problm.jit.elementary`, counted in the machine code of their loops on x86-64 with AVX2."""


def models() -> dict[str, Any]:
    import problm

    m = problm.models
    return {
        "line": m.line(), "polynomial, degree 4": m.polynomial(4), "exponential": m.exponential(),
        "Gaussian": m.gaussian(), "Lorentzian": m.lorentzian(), "logistic": m.logistic(), "power law": m.power_law(),
        "damped sine": m.damped_sine(), "Voigt": m.voigt(),
        "two Gaussians and a line": m.gaussian() + m.gaussian() + m.line(),
    }  # fmt: skip


def operations(program: Any, count: int) -> int:
    """Floating-point operations per row of the first ``count`` vector instructions of a tape."""
    from problm.kernels import tape

    own = {
        tape.FILL: 0, tape.LIN1: 2, tape.LIN2: 4, tape.PROD: 3, tape.MADD: 5, tape.RECIPROCAL: 3, tape.POWER: 87,
        tape.SINCOS: 59, tape.W: 102, tape.WHERE: 0, tape.EXP_PROD: 3 + _FUNCTIONS["exp"], tape.POW: 85,
    }  # fmt: skip
    own |= {tape.CODES[name]: 2 + each for name, each in _FUNCTIONS.items()}
    first = tape.HEADER + tape.SCALAR_WIDTH * int(program[0])
    codes = program[first : first + tape.VECTOR_WIDTH * count : tape.VECTOR_WIDTH]
    return sum(own[int(code)] for code in codes)


@cache
def limits_compiled() -> tuple[Callable[..., float], Callable[..., None], Callable[..., float]]:
    """Sum of an array, triad, and chains of multiply-adds in vector registers."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def chains(typing: Any, n: Any, by: Any) -> Any:
        def codegen(context: Any, b: Any, signature: Any, args: Any) -> Any:
            n, by = args
            vector, i64 = ir.VectorType(ir.DoubleType(), _LANES), ir.IntType(64)
            spread = ir.Constant(vector, ir.Undefined)
            for lane in range(_LANES):
                spread = b.insert_element(spread, by, ir.IntType(32)(lane))
            before, body, after = b.block, b.append_basic_block("chains"), b.append_basic_block("end")
            b.branch(body)
            b.position_at_end(body)
            at = b.phi(i64)
            at.add_incoming(i64(0), before)
            values = [b.phi(vector) for _ in range(_CHAINS)]
            for k, value in enumerate(values):
                value.add_incoming(ir.Constant(vector, [1.0 + k] * _LANES), before)
                product = b.fmul(value, spread, flags=("contract",))
                value.add_incoming(b.fadd(product, spread, flags=("contract",)), body)
            later = b.add(at, i64(1))
            at.add_incoming(later, body)
            b.cbranch(b.icmp_signed("<", later, n), body, after)
            b.position_at_end(after)
            total = values[0]
            for value in values[1:]:
                total = b.fadd(total, value)
            return b.extract_element(total, ir.IntType(32)(0))

        return types.float64(types.int64, types.float64), codegen

    f8 = types.float64

    @njit(f8(f8[::1]), fastmath=True)
    def total(x: Any) -> float:
        s = 0.0
        for i in range(x.shape[0]):
            s += x[i]
        return s

    @njit(types.void(f8[::1], f8[::1], f8[::1]))
    def triad(a: Any, b: Any, c: Any) -> None:
        for i in range(a.shape[0]):
            a[i] = b[i] + 0.5 * c[i]

    @njit(f8(types.int64, f8))
    def multiply_adds(n: int, by: float) -> float:
        return chains(n, by)

    return total, triad, multiply_adds


def seconds(call: Callable[[], object], repeats: int) -> list[float]:
    """CPU times of several calls."""
    times = []
    for _ in range(repeats):
        began = time.thread_time()
        call()
        times.append(time.thread_time() - began)
    return times


def limits(rows: int = 1 << 23, repeats: int = 9) -> dict[str, float]:
    """GB/s of reading and of the triad, GFlop/s of multiply-adds: the best of the repeats, because these are limits."""
    total, triad, multiply_adds = limits_compiled()
    a, b, c = (np.full(rows, v) for v in (0.0, 1.0, 2.0))
    steps = 2_000_000
    return {
        "read": 8e-9 * rows / min(seconds(lambda: total(b), repeats)),
        "triad": 24e-9 * rows / min(seconds(lambda: triad(a, b, c), repeats)),
        "peak": 2e-9 * _LANES * _CHAINS * steps / min(seconds(lambda: multiply_adds(steps, 0.5), repeats)),
    }


def costs(rows: int, repeats: int = 9) -> list[dict[str, Any]]:
    """ns per residual of each model, for linearisation and cost, with the number of operations."""
    from problm.losses import Loss
    from problm.problems.compiled import CompiledProblem

    rng = np.random.default_rng(SEED)
    x, y = rng.uniform(0.5, 9.5, rows), rng.standard_normal(rows)
    found = []
    for name, model in models().items():
        d = len(model.parameters)
        kernel = model.curve_kernel(1, d, None, Loss.named("linear"), 1)
        problem, theta = CompiledProblem(kernel, [x, y]), np.linspace(0.7, 1.3, d)

        def linearise(problem: Any = problem, theta: Any = theta) -> object:
            return problem.linearize(theta, 0, rows, outer=False, costs=None)

        def cost(problem: Any = problem, theta: Any = theta) -> object:
            return problem.cost(theta)

        linearise(), cost()
        both = [(seconds(linearise, 1)[0], seconds(cost, 1)[0]) for _ in range(repeats)]
        program = kernel.program
        found.append({
            "model": name, "parameters": d,
            "linearise": record.spread([1e9 * t / rows for t, _ in both]),
            "cost": record.spread([1e9 * t / rows for _, t in both]),
            "linearise_operations": operations(program, int(program[2])) + _COST + (d + 1) * (d + 2),
            "cost_operations": operations(program, int(program[3])) + _COST,
        })  # fmt: skip
    return found


def shares(found: dict[str, Any], machine: dict[str, float]) -> None:
    """Add the limit of each pass in ns, its cause, and the share of it that the kernel reaches."""
    for what in ("linearise", "cost"):
        memory, arithmetic = 16.0 / machine["read"], found[f"{what}_operations"] / machine["peak"]
        found[f"{what}_limit"] = float(f"{max(memory, arithmetic):.4g}")
        found[f"{what}_limited_by"] = "memory" if memory > arithmetic else "arithmetic"
        found[f"{what}_share"] = float(f"{max(memory, arithmetic) / found[what]['median']:.4g}")


def text(rows: int, machine: dict[str, float], found: Sequence[dict[str, Any]]) -> list[str]:
    def cells(r: dict[str, Any], what: str) -> list[str]:
        return [
            record.told(r[what]), str(r[f"{what}_operations"]),
            f"{r[f'{what}_limit']:.2g} ({r[f'{what}_limited_by']})", f"{r[f'{what}_share']:.0%}",
        ]  # fmt: skip

    heads = ["model", "d", "ns a residual", "operations", "limit, ns", "share"]
    return [
        "# Cost of the kernels",
        f"One thread, {rows:,} rows of two float64 columns, medians of interleaved repeats (least to greatest). This "
        f"machine reads {machine['read']:.3g} GB/s (triad {machine['triad']:.3g} GB/s) and does "
        f"{machine['peak']:.3g} GFlop/s of multiply-adds on vectors of four numbers, measured in the same run.",
        "Linearise: cost, gradient and Gauss-Newton matrix.",
        markdown_table(heads, [[r["model"], r["parameters"], *cells(r, "linearise")] for r in found]),
        "Cost alone:",
        markdown_table(heads, [[r["model"], r["parameters"], *cells(r, "cost")] for r in found]),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    single_thread()
    p = argparse.ArgumentParser(prog="python -m bench.studies.kernel_costs", description=(__doc__ or "").split("\n")[0])
    p.add_argument("--rows", type=int, default=1_000_000)
    p.add_argument("-o", "--output", type=Path, default=record.RESULTS)
    options = p.parse_args(arguments)
    began = time.monotonic()
    before = limits()
    found = costs(options.rows)
    after = limits()
    machine = {name: float(f"{max(before[name], after[name]):.4g}") for name in before}
    for each in found:
        shares(each, machine)
    data = {"rows": options.rows, "limits": machine, "kernels": found}
    record.write(
        options.output,
        "kernels",
        text(options.rows, machine, found),
        data,
        record.about(seed=SEED, seconds=time.monotonic() - began),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
