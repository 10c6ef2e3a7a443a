import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.diagnostics import median_lengthscale


def test_mmd2_of_gaussians_matches_its_closed_form():
    """E k(y, y') for y - y' ~ N(m, v) is sqrt(l^2 / (l^2 + v)) exp(-m^2 / (2 (l^2 + v)))."""
    rng = np.random.default_rng(0)
    y, z = rng.standard_normal((4000, 1)), 1.5 + 2 * rng.standard_normal((4000, 1))

    def expected(variance, shift=0.0):
        return np.sqrt(1 / (1 + variance)) * np.exp(-(shift**2) / (2 * (1 + variance)))

    exact = expected(2) - 2 * expected(5, 1.5) + expected(8)
    assert nsm.metrics.mmd2(y, z, lengthscale=1.0) == pytest.approx(exact, rel=0.05)


def test_mmd2_with_samples_of_different_sizes():
    """The last term is divided by n_2^2: with the paper's 1 / n_2 the value would be off by a factor of n_2."""
    rng = np.random.default_rng(1)
    y, z = rng.standard_normal((50, 2)), rng.standard_normal((80, 2))
    k = lambda a, b: np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / 2)  # noqa: E731
    expected = k(y, y).sum() / 50**2 - 2 * k(y, z).sum() / (50 * 80) + k(z, z).sum() / 80**2
    assert nsm.metrics.mmd2(y, z, lengthscale=1.0) == pytest.approx(expected)
    assert 0 < expected < 0.1


def test_median_heuristic():
    y = np.random.default_rng(2).standard_normal((300, 3))
    distances = [((a - b) ** 2).sum() for i, a in enumerate(y) for b in y[:i]]
    assert median_lengthscale(y) == pytest.approx(np.sqrt(np.median(distances) / 2))


def test_covers_has_its_nominal_rate():
    """2000 Gaussian truths against 500 draws each: the rate is 0.95 within 4 binomial errors (false alarm 6e-5)."""
    rng = np.random.default_rng(3)
    factor = np.array([[1.0, 0.0], [3.0, 0.5]])
    hits = [
        nsm.metrics.covers(rng.standard_normal((500, 2)) @ factor.T, factor @ rng.standard_normal(2))
        for _ in range(2000)
    ]
    assert abs(np.mean(hits) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)
    wrong = [
        nsm.metrics.covers(rng.standard_normal((500, 2)) @ factor, factor @ rng.standard_normal(2)) for _ in range(200)
    ]
    assert abs(np.mean(wrong) - 0.95) > 4 * np.sqrt(0.95 * 0.05 / 200)


def test_mse():
    assert nsm.metrics.mse([[0.0, 0.0], [2.0, 0.0]], [0.0, 1.0]) == pytest.approx((1 + 5) / 2)


def test_mmd2_to_a_constant_sample_needs_a_lengthscale():
    y, constant = np.arange(6.0)[:, None], np.ones((5, 1))
    with pytest.raises(nsm.InputError, match="`reference` is constant"):
        nsm.metrics.mmd2(y, constant)
    assert nsm.metrics.mmd2(y, constant, lengthscale=1.0) > 0
    assert nsm.metrics.mmd2(constant, y) > 0
