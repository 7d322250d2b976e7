"""The random order: every batch, hold-out block and complement is the simple random sample that it claims to be.

The statistical tests use fixed seeds and reject at p < 1e-4, so they fail for a wrong sampler and not by chance.
Each runs on few rows of many and on a large share of them, which NumPy draws in different ways.
"""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from problm.kernels.columns import load_rows
from problm.sampling.columns import SampledColumns, gather
from problm.sampling.order import RandomOrder, as_generator, by_searching
from problm.sampling.order_compiled import by_walking

ALPHA = 1e-4


def blocks(n, cuts, seed):
    order = RandomOrder(n, seed)
    return [order.indices(lo, hi) for lo, hi in itertools.pairwise([0, *cuts])]


def uniform(counts, cells):
    """p-value of the hypothesis that all of ``cells`` outcomes are equally likely."""
    observed = np.zeros(cells)
    observed[: len(counts)] = list(counts)
    assert observed.sum() >= 5 * cells, "too few draws for a chi-square test"
    return stats.chisquare(observed).pvalue


def tally(outcomes):
    counts = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts


# (n, cuts of the order): few rows of many, and large shares.
EXACT = [(24, (2,)), (16, (1, 2)), (7, (3,)), (6, (1, 3)), (5, (2, 4)), (12, (1, 3)), (17, (2, 17))]


@pytest.mark.parametrize(("n", "cuts"), EXACT)
@pytest.mark.parametrize("fresh_seeds", [True, False])
def test_all_outcomes_are_equally_likely(n, cuts, fresh_seeds):
    # The strongest form of the claim: each tuple of disjoint subsets appears equally often. Pairs of rows, runs
    # and the independence of batch and hold-out all follow from it.
    cells, free = 1, n
    for m in np.diff([0, *cuts]):
        cells *= int(stats.binom(free, 0.5).pmf(m) * 2.0**free + 0.5)
        free -= m
    stream = np.random.default_rng(99)
    outcomes = (
        tuple(tuple(block.tolist()) for block in blocks(n, cuts, seed if fresh_seeds else stream))
        for seed in range(8 * cells)
    )
    counts = tally(outcomes)
    assert len(counts) <= cells
    assert uniform(counts.values(), cells) > ALPHA


@pytest.mark.parametrize(("n", "cuts"), [(400, (20, 45)), (300, (60, 150)), (320, (20, 200))])
def test_rows_and_pairs_are_included_equally_often(n, cuts):
    draws = 3000
    inside = [np.zeros((draws, n), dtype=np.float32) for _ in cuts]
    for seed in range(draws):
        for row, block in zip(inside, blocks(n, cuts, seed), strict=True):
            row[seed, block] = 1.0
    sizes = np.diff([0, *cuts])
    for row, m in zip(inside, sizes, strict=True):
        p = m / n
        counts = row.sum(axis=0, dtype=float)
        # Counts of rows have the covariance -p(1-p)/(n-1): n-1 degrees of freedom, variance larger by n/(n-1).
        statistic = ((counts - draws * p) ** 2).sum() / (draws * p * (1 - p)) * (n - 1) / n
        assert ALPHA < stats.chi2.cdf(statistic, n - 1) < 1 - ALPHA
        assert_pairs(row.T @ row, draws, n, m)
    # One row in the batch, the other in the hold-out block.
    p = sizes[0] * sizes[1] / (n * (n - 1))
    apart = ~np.eye(n, dtype=bool)
    z = (inside[0].T @ inside[1] - draws * p) / np.sqrt(draws * p * (1 - p))
    assert np.trace(inside[0].T @ inside[1]) == 0
    assert np.abs(z[apart]).max() < stats.norm.isf(ALPHA / apart.sum()) + 1.0  # binomial tails are a little heavier
    assert abs(np.mean(z[apart] ** 2) - 1) < 5 * np.sqrt(2 / n)


def assert_pairs(table, draws, n, m):
    """Counts of pairs, freed of what the counts of the single rows explain.

    The covariance of the pairs' indicators depends on how many rows two pairs share (2, 1 or 0), so its
    eigenspaces are those of the Johnson scheme J(n, 2): constants, row effects, and the rest, of dimension
    n (n - 3) / 2 with the eigenvalue c2 - 2 c1 + c0.
    """
    p2, p3, p4 = (np.prod((m - np.arange(k)) / (n - np.arange(k))) for k in (2, 3, 4))
    eigenvalue = p2 - 2 * p3 + p4
    table = table.astype(float)
    np.fill_diagonal(table, 0.0)
    sums = table.sum(axis=1)
    effect = (sums - sums.sum() / (2 * (n - 1))) / (n - 2)
    upper = np.triu_indices(n, 1)
    z = (table - effect[:, None] - effect)[upper] / np.sqrt(draws * eigenvalue)
    dof = n * (n - 3) / 2
    assert abs((z**2).sum() - dof) < 5 * np.sqrt(2 * dof)
    assert np.abs(z).max() < stats.norm.isf(ALPHA / len(z)) + 1.0
    near = upper[1] - upper[0] <= 2  # rows side by side are as likely as far ones
    assert abs(z[near].mean()) < 4 / np.sqrt(near.sum())


DATA = {
    "sorted": lambda n: np.arange(n) / n,
    "sorted, heavy tail": lambda n: -np.log1p(-np.arange(n) / n),
    "period 64": lambda n: np.sin(2 * np.pi * np.arange(n) / 64),
    "alternating": lambda n: np.arange(n) % 2.0,
    "two clusters": lambda n: (np.arange(n) < n // 3).astype(float),
}


@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize(("n", "k", "m"), [(20_000, 300, 300), (5_000, 1_250, 1_250), (9_000, 1_000, 2_000)])
def test_means_have_the_variance_of_a_simple_random_sample(kind, n, k, m):
    # What the acceptance test relies on: batch mean and, given the batch, hold-out mean are centred, with the
    # finite-population variance, whatever the order of the file.
    values = DATA[kind](n)
    z = []
    for seed in range(300):
        batch, hold_out = blocks(n, (k, k + m), seed)
        rest = np.delete(values, batch)
        z.append(
            (
                (values[batch].mean() - values.mean()) / (values.std(ddof=1) * np.sqrt((1 - k / n) / k)),
                (values[hold_out].mean() - rest.mean()) / (rest.std(ddof=1) * np.sqrt((1 - m / (n - k)) / m)),
            )
        )
    z = np.array(z)
    for column in z.T:
        assert stats.kstest(column, "norm").pvalue > ALPHA
        assert ALPHA < stats.chi2.cdf((column**2).sum(), len(column)) < 1 - ALPHA
    assert abs(np.corrcoef(z.T)[0, 1]) < 4 / np.sqrt(len(z))


@pytest.mark.parametrize(
    ("n", "cuts"), [(4_000, (400,)), (4_000, (100, 350)), (4_000, (2_000,)), (4_001, (300, 3_000))]
)
def test_runs(n, cuts):
    # Wald-Wolfowitz on "in the block or not" along the rows that were free: neither clumped nor spread out.
    z = []
    for seed in range(300):
        free = np.ones(n, dtype=bool)
        *before, last = blocks(n, cuts, seed)
        for block in before:
            free[block] = False
        label = np.zeros(n, dtype=bool)
        label[last] = True
        label = label[free]
        total, m = len(label), int(label.sum())
        expected = 2 * m * (total - m) / total + 1
        variance = (expected - 1) * (expected - 2) / (total - 1)
        z.append((1 + np.count_nonzero(label[1:] != label[:-1]) - expected) / np.sqrt(variance))
    assert stats.kstest(z, "norm").pvalue > ALPHA


cuts_of = st.integers(1, 300).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n), max_size=6).map(lambda cuts: sorted(set(cuts))))
)


@given(cuts_of, st.integers(0, 2**63))
def test_order_is_a_permutation_in_ascending_segments(n_cuts, seed):
    n, cuts = n_cuts
    order = RandomOrder(n, seed)
    parts = [order.indices(lo, hi) for lo, hi in itertools.pairwise([0, *cuts, n])]
    for part in parts:
        assert part.dtype == np.int64
        assert np.all(np.diff(part) > 0)
    whole = np.concatenate(parts)
    np.testing.assert_array_equal(np.sort(whole), np.arange(n))
    np.testing.assert_array_equal(order.indices(0, n), whole)
    np.testing.assert_array_equal(np.concatenate(blocks(n, [*cuts, n], seed)), whole)
    for lo, hi in itertools.combinations(sorted({0, *cuts, n}), 2):
        np.testing.assert_array_equal(order.indices(lo, hi), whole[lo:hi])


@given(cuts_of, st.integers(0, 1000))
def test_boundary_is_the_next_end_of_a_segment(n_cuts, seed):
    n, cuts = n_cuts
    order = RandomOrder(n, seed)
    for cut in cuts:
        order.indices(order.drawn, cut)
    ends = {0, *cuts}
    for position in range(n + 1):
        expected = min((e for e in ends if e >= position), default=position)
        assert order.boundary(position) == expected


def test_a_cut_inside_a_segment_is_refused():
    order = RandomOrder(1000, 0)
    order.indices(0, 100)
    with pytest.raises(ValueError, match="50"):
        order.indices(0, 50)
    np.testing.assert_array_equal(order.indices(0, 100), blocks(1000, (100,), 0)[0])


def test_ranges_that_start_beyond_what_is_drawn():
    order = RandomOrder(1000, 3)
    late = order.indices(100, 150)
    early = order.indices(0, 100)
    assert len(np.intersect1d(late, early)) == 0
    np.testing.assert_array_equal(order.indices(0, 150), np.concatenate([early, late]))
    np.testing.assert_array_equal(order.indices(100, 300)[:50], late)


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 1000])
def test_everything_at_once_is_the_natural_order(n):
    np.testing.assert_array_equal(RandomOrder(n, 1).indices(0, n), np.arange(n))


def test_more_rows_than_there_are():
    with pytest.raises(ValueError, match="cannot draw 6 rows: 5 of 5 are left"):
        RandomOrder(5).indices(0, 6)
    with pytest.raises(ValueError, match="4 of 5"):
        blocks(5, (1, 6), 0)


@given(st.integers(1, 60), st.integers(0, 10**6))
def test_numbers_of_free_rows_become_rows(n, seed):
    rng = np.random.default_rng(seed)
    taken = np.flatnonzero(rng.random(n) < rng.random())
    free = np.setdiff1d(np.arange(n), taken)
    chosen = np.flatnonzero(rng.random(len(free)) < rng.random())
    for wanted, count in itertools.product((True, False), (by_searching, by_walking)):
        rows, union = chosen.copy(), np.full(len(taken) + len(chosen) if wanted else 0, -1)
        count(rows, taken, union)
        np.testing.assert_array_equal(rows, free[chosen])
        if wanted:
            np.testing.assert_array_equal(union, np.union1d(taken, rows))


def test_the_order_is_what_it_was():
    # Seeds name results in papers and issues: the rows that belong to one must not change.
    parts = blocks(1000, (5, 10, 200, 1000), 7)
    assert parts[0].tolist() == [104, 255, 339, 470, 501]
    assert parts[1].tolist() == [2, 621, 747, 813, 931]
    assert [int(part.sum()) for part in parts] == [1669, 3114, 96436, 398281]
    assert [int((part * np.arange(len(part))).sum()) for part in parts] == [4347, 8278, 12215741, 212015109]


def test_same_seed_same_rows_and_other_seed_other_rows():
    one, same, other = (blocks(10**6, (500, 2000), seed) for seed in (5, 5, 6))
    for a, b, c in zip(one, same, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
    generator = np.random.default_rng(5)
    assert as_generator(generator) is generator
    for a, b in zip(one, blocks(10**6, (500, 2000), np.random.default_rng(5)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_first_rows_of_a_huge_file_cost_nothing():
    order = RandomOrder(10**15, 0)  # a mask or a permutation of that length could not even be allocated
    rows = order.indices(0, 1000)
    assert 0 <= rows[0] < rows[-1] < 10**15


# -- columns ----------------------------------------------------------------------------------------------------


def strided(n):
    return np.arange(3.0 * n)[::3]


COLUMNS = {
    "f8": lambda n: np.arange(n) + 0.5,
    "f4": lambda n: (np.arange(n) + 0.5).astype(np.float32),
    "f2": lambda n: np.arange(n).astype(np.float16),
    "i1": lambda n: (np.arange(n) % 100).astype(np.int8),
    "u8": lambda n: np.arange(n).astype(np.uint64) + 2**63,
    "bool": lambda n: np.arange(n) % 3 == 0,
    "complex": lambda n: np.arange(n) * (1 + 2j),
    "big-endian": lambda n: np.arange(n).astype(">f8"),
    "text": lambda n: np.array([f"row {i}" for i in range(n)]),
    "datetime": lambda n: np.datetime64("2020-01-01") + np.arange(n),
    "structured": lambda n: np.array([(i, -i) for i in range(n)], dtype=[("a", "i4"), ("b", "f8")]),
    "strided": strided,
    "reversed": lambda n: np.arange(float(n))[::-1],
    "broadcast": lambda n: np.broadcast_to(7.5, (n,)),
    "matrix": lambda n: np.arange(4.0 * n).reshape(n, 4),
    "fortran": lambda n: np.asfortranarray(np.arange(3.0 * n).reshape(n, 3)),
    "tensor": lambda n: np.arange(6 * n).reshape(n, 3, 2),
    "read-only": lambda n: np.frombuffer(np.arange(float(n)).tobytes()),
    "no width": lambda n: np.empty((n, 0)),
}


@pytest.mark.parametrize("kind", COLUMNS)
@pytest.mark.parametrize("n", [200, 5000])
def test_columns_hold_the_rows_of_the_order(kind, n):
    column = COLUMNS[kind](n)
    data = SampledColumns([column, np.arange(n)], rng=4)
    for lo, hi in [(0, 40), (40, 90), (0, 40), (0, 90), (90, 95), (0, 95), (95, n), (0, n), (40, 95), (40, n)]:
        values, rows = data.rows(lo, hi)
        assert values.dtype == column.dtype
        assert values.shape == (hi - lo, *column.shape[1:])
        np.testing.assert_array_equal(values, column[rows])
        if (lo, hi) != (0, n):
            np.testing.assert_array_equal(rows, data.order.indices(lo, hi))
    assert data.rows(0, n)[0] is column  # in place: everything is never copied


def test_batches_are_contiguous_and_do_not_move_under_the_caller():
    n = 10_000
    data = SampledColumns([strided(n), np.arange(2.0 * n).reshape(n, 2)], rng=1)
    first = data.rows(0, 100)
    copies = [a.copy() for a in first]
    for hi in (200, 400, 1000, 3000):  # the buffers grow several times
        data.rows(100, hi) if hi == 200 else data.rows(0, hi)
        assert all(a.flags.c_contiguous for a in data.rows(0, hi))
    for a, b, again in zip(first, copies, data.rows(0, 100), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(again, b)


def test_release_forgets_the_gathered_rows_but_not_the_order():
    data = SampledColumns([np.arange(1000.0)], rng=2)
    before = data.rows(0, 50)[0].copy()
    data.rows(50, 1000)
    data.release()
    assert sum(b.nbytes for b in data._buffers) == 0
    assert data.rows(0, 1000)[0] is data.columns[0]
    np.testing.assert_array_equal(data.rows(0, 50)[0], before)


def test_tables_say_where_the_rows_lie():
    n = 1000
    data = SampledColumns([np.arange(n), np.arange(2.0 * n).reshape(n, 2)], rng=1)
    for lo, hi in [(0, 30), (30, 60), (0, 60), (60, 200), (0, 30), (30, 200), (200, n), (0, n)]:
        table, first, kept = data.table(lo, hi)
        read = np.empty((3, hi - lo))
        load_rows(table, first, hi - lo, read)
        rows = data.rows(lo, hi)
        np.testing.assert_array_equal(read, [rows[0], *rows[1].T])
        assert kept[0].base is None
    data.release()
    assert data.table(0, 30)[1] == 0


def test_the_complement_is_not_kept():
    data = SampledColumns([np.arange(100_000.0)], rng=2)
    data.rows(0, 100)
    rest = data.rows(100, 100_000)[0]
    assert len(rest) == 99_900
    assert sum(b.nbytes for b in data._buffers) < 10_000


@given(cuts_of, st.integers(0, 100), st.randoms(use_true_random=False))
def test_columns_whatever_the_sequence_of_requests(n_cuts, seed, random):
    n, cuts = n_cuts
    data = SampledColumns([np.arange(n)], rng=seed)
    whole = np.concatenate(blocks(n, [*cuts, n], seed))
    for lo, hi in itertools.pairwise([0, *cuts]):  # growth, with looks back in between
        back = random.choice([e for e in (0, *cuts) if e <= lo])
        for first in (lo, back):
            if (first, hi) != (0, n):
                np.testing.assert_array_equal(data.rows(first, hi)[0], whole[first:hi])


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:, 0],
        lambda a: a[::-1, 1],
        lambda a: a[::2],
        lambda a: np.asfortranarray(a),
        lambda a: a.astype(">f8")[:, 0],
        lambda a: a.astype(np.float32)[:, 1],
        lambda a: a.astype(np.float16)[:, 0],
    ],
    ids=["column", "reversed", "every other", "fortran", "big-endian", "float32", "float16"],
)
def test_gathering_takes_no_time_for_the_rows_that_it_leaves_out(view):
    # A thousand rows of a few thousand and of four million: np.take would copy the whole column first, which takes
    # a thousand times as long for the second.
    def seconds(n):
        column = view(np.arange(2.0 * n).reshape(n, 2) % 2039)
        index = np.linspace(0, len(column) - 1, 1000).astype(np.int64)
        out = np.empty((1000, *column.shape[1:]), dtype=np.float64 if column.dtype.str[0] == ">" else column.dtype)
        times = []
        for _ in range(5):
            began = time.thread_time()
            gather(column, index, out)
            times.append(time.thread_time() - began)
        np.testing.assert_array_equal(out, column[index])
        return min(times)

    assert seconds(4_000_000) < 50 * seconds(4_000) + 5e-4


def test_rows_can_be_asked_for_in_another_type():
    column = np.arange(1000.0).astype(">f8")
    data = SampledColumns([column], rng=3, types=[np.dtype(np.float64)])
    batch = data.rows(0, 100)[0]
    assert batch.dtype.isnative
    np.testing.assert_array_equal(batch, column[data.order.indices(0, 100)])
    rest = data.rows(100, 1000)[0]
    assert rest.dtype.isnative
    assert sorted([*batch, *rest]) == list(range(1000))
    assert data.rows(0, 1000)[0] is column
