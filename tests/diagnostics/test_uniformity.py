import numpy as np
import pytest
from scipy import stats

from nsmbayes.diagnostics.uniformity import band, evaluation_points, inside_probability, p_value


@pytest.mark.parametrize("n", [7, 60, 150])
def test_the_probability_of_staying_inside_is_that_of_simulated_numbers(n):
    """The recursion against 4,000 simulated samples, within four standard errors (false alarm 6e-5 each)."""
    rng, z = np.random.default_rng(n), evaluation_points(n)
    counts = (rng.random((4000, n, 1)) <= z).sum(axis=1) if n < 100 else _counts(rng, n, z)
    tails = 2 * np.minimum(stats.binom.cdf(counts, n, z), stats.binom.sf(counts - 1, n, z)).min(axis=1)
    for gamma in (0.001, 0.01, 0.1):
        exact = inside_probability(n, gamma)
        error = np.sqrt(exact * (1 - exact) / 4000) + 1e-9
        assert abs((tails > gamma).mean() - exact) < 4 * error


def _counts(rng, n, z):
    return np.stack([np.searchsorted(np.sort(rng.random(n)), z, side="right") for _ in range(4000)])


def test_two_numbers_by_hand():
    """One point, z = 1/2: both numbers lie on one side with probability 1/2, and 2 P(N <= 0) = 1/2."""
    assert inside_probability(2, 0.49) == pytest.approx(1.0)
    assert inside_probability(2, 0.5) == pytest.approx(0.5)
    assert p_value(np.array([0.1, 0.2])) == pytest.approx(0.5)
    assert p_value(np.array([0.1, 0.9])) == pytest.approx(1.0)


def test_the_band_and_the_p_value_agree():
    """A sample leaves the band of a false-alarm rate exactly if its p-value is at most that."""
    rng, found = np.random.default_rng(0), band(80, 0.2)
    outside = []
    for _ in range(200):
        u = rng.random(80)
        heights = np.searchsorted(np.sort(u), found.points, side="right") / 80
        outside.append(bool(((heights < found.low - 1e-9) | (heights > found.high + 1e-9)).any()))
        assert outside[-1] == (p_value(u) <= 0.2)
    assert 20 < sum(outside) < 60  # 40 expected, four standard errors are 23


@pytest.mark.parametrize("power", [0.6, 1.6])
def test_numbers_that_are_not_uniform_are_seen(power):
    u = np.random.default_rng(1).random(300) ** power
    assert p_value(u) < 1e-4
