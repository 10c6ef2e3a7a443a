import numpy as np
import pytest

from nsmbayes.errors import InputError
from nsmbayes.tasks.contamination import binomial_thinning, cauchy_noise, choose_outliers, huber_shift


def _rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize(("n", "fraction", "expected"), [(100, 0.1, 10), (7, 0.3, 2), (5, 0.0, 0), (10, 0.99, 10)])
def test_number_of_outliers_is_exact(n, fraction, expected):
    assert choose_outliers(n, fraction=fraction, rng=_rng()).sum() == expected


def test_outliers_are_spread_over_all_rows():
    # Each of 50 rows is hit 0.2 * 1000 times on average, with a standard deviation of 13.
    hits = sum(choose_outliers(50, fraction=0.2, rng=_rng(seed)).astype(int) for seed in range(1000))
    assert np.abs(hits - 200).max() < 5 * 13


def test_smaller_fraction_is_nested_in_larger():
    few, many = (choose_outliers(200, fraction=fraction, rng=_rng(3)) for fraction in (0.1, 0.4))
    assert not (few & ~many).any()


def test_marked_rows_move_and_no_other():
    clean = _rng(1).normal(size=(40, 2))
    before = clean.copy()
    x, is_outlier = huber_shift(clean, fraction=0.25, shift=[3.0, -50.0], rng=_rng())
    assert np.array_equal(x[is_outlier], clean[is_outlier] + [3.0, -50.0])
    assert np.array_equal(x[~is_outlier], clean[~is_outlier])
    assert np.array_equal(clean, before)
    assert not np.shares_memory(x, clean)


def test_scalar_shift_moves_every_column():
    x, _ = huber_shift(np.zeros((4, 3)), fraction=0.5, shift=-50.0, rng=_rng())
    assert sorted(x.sum(axis=1)) == [-150.0, -150.0, 0.0, 0.0]


def test_rows_follow_the_generator():
    masks = [choose_outliers(100, fraction=0.5, rng=_rng(seed)) for seed in (0, 0, 1)]
    assert np.array_equal(masks[0], masks[1])
    assert not np.array_equal(masks[0], masks[2])


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan"), "a lot"])
def test_bad_fraction(fraction):
    with pytest.raises(InputError, match="`fraction`"):
        huber_shift(np.zeros((4, 1)), fraction=fraction, shift=1.0, rng=_rng())


def test_bad_shift_and_bad_data():
    with pytest.raises(InputError, match=r"`shift` must be one number or have shape \(3,\)"):
        huber_shift(np.zeros((4, 3)), fraction=0.5, shift=[1.0, 2.0], rng=_rng())
    with pytest.raises(InputError, match="`clean`"):
        huber_shift(np.full((4, 1), np.nan), fraction=0.5, shift=1.0, rng=_rng())


def test_cauchy_noise_has_its_quartiles_in_every_column():
    clean = np.arange(40_000.0).reshape(20_000, 2)
    x, is_outlier = cauchy_noise(clean, fraction=0.5, scale=[1.0, 10.0], rng=_rng())
    assert is_outlier.sum() == 10_000
    assert np.array_equal(x[~is_outlier], clean[~is_outlier])
    # A quartile of 10,000 draws has a standard error of 0.027 scales, and the two columns are not the same draws.
    noise = (x - clean)[is_outlier] / [1.0, 10.0]
    assert np.abs(np.quantile(noise, [0.25, 0.75], axis=0) - [[-1.0], [1.0]]).max() < 5 * 0.027
    assert abs(np.corrcoef(np.sign(noise).T)[0, 1]) < 0.05


def test_thinning_keeps_each_case_with_the_retention():
    counts = _rng(1).integers(0, 50, size=(400, 100))
    thinned, is_outlier = binomial_thinning(counts, fraction=0.25, retention=0.3, rng=_rng())
    assert thinned.dtype.kind == "i"
    assert is_outlier.sum() == 100
    assert np.array_equal(thinned[~is_outlier], counts[~is_outlier])
    assert (thinned <= counts).all()
    total = counts[is_outlier].sum()
    assert abs(thinned[is_outlier].sum() - 0.3 * total) < 5 * np.sqrt(0.21 * total)


@pytest.mark.parametrize(
    "contaminate",
    [
        lambda fraction: cauchy_noise(np.zeros((50, 3)), fraction=fraction, scale=1.0, rng=_rng(3)),
        lambda fraction: binomial_thinning(np.full((50, 3), 90), fraction=fraction, retention=0.5, rng=_rng(3)),
    ],
)
def test_a_larger_fraction_treats_the_first_outliers_alike(contaminate):
    (few, touched), (many, _) = contaminate(0.1), contaminate(0.6)
    assert touched.sum() == 5
    assert np.array_equal(few[touched], many[touched])


def test_bad_scale_counts_and_retention():
    for scale, message in (([1.0, 2.0], r"have shape \(3,\)"), (0.0, "must be positive"), (-1.0, "must be positive")):
        with pytest.raises(InputError, match=f"`scale` must .*{message}|`scale` {message}"):
            cauchy_noise(np.zeros((4, 3)), fraction=0.5, scale=scale, rng=_rng())
    for counts in ([[0.5, 1.0]], [[-1, 2]]):
        with pytest.raises(InputError, match="`counts` must contain whole numbers"):
            binomial_thinning(counts, fraction=0.5, retention=0.5, rng=_rng())
    with pytest.raises(InputError, match="`retention` must lie in"):
        binomial_thinning([[1, 2]], fraction=0.5, retention=1.0, rng=_rng())
