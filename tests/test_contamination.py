import numpy as np
import pytest

from nsmbayes._checks import InputError
from nsmbayes.contamination import choose_outliers, huber_shift


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
