import numpy as np
import pytest
from scipy import stats

from nsmbayes._internal.psis import fit_pareto, smooth, trusted_k


@pytest.mark.parametrize("k", [-0.2, 0.3, 0.9])
def test_the_shape_of_a_tail_is_found(k):
    x = np.sort(stats.genpareto.rvs(k, scale=2.0, size=4000, random_state=1))
    shape, scale = fit_pareto(x)
    assert shape == pytest.approx(k, abs=4 * (1 + abs(k)) / np.sqrt(4000) + 0.01)
    assert scale == pytest.approx(2.0, rel=0.15)


@pytest.mark.parametrize("step", [0.1, 1.0, 3.0])
def test_weights_are_those_of_arviz(step):
    """The implementation of ArviZ as an independent route; its scale is found by other arithmetic."""
    arviz = pytest.importorskip("arviz")
    x = np.random.default_rng(0).standard_normal((1500, 3))
    logs = step * x - 0.2 * x**2
    weights, k = arviz.psislw(logs.T.copy())
    found = smooth(logs)
    assert found.k == pytest.approx(np.asarray(k), abs=1e-8)
    assert pytest.approx(np.asarray(weights), abs=1e-8) == found.log_weights.T


def test_draws_that_a_chain_repeats_are_no_obstacle():
    """Ties at the edge of the tail: the others above it are fitted, as ArviZ does."""
    arviz = pytest.importorskip("arviz")
    logs = np.repeat(np.random.default_rng(3).standard_normal(300), 4)
    weights, k = arviz.psislw(logs.copy())
    found = smooth(logs)
    assert float(found.k) == pytest.approx(float(k), abs=1e-8)
    assert found.k < 0.7
    assert np.sort(found.log_weights) == pytest.approx(np.sort(np.asarray(weights)), abs=1e-8)  # ties in any order


def test_averages_and_their_trust():
    """From N(0, 1) to N(1, 1) 4,000 draws are enough; to N(0, 25), with k = 1 - 1 / 25, not."""
    x = np.random.default_rng(2).standard_normal(4000)
    near, wide = smooth(x), smooth(0.48 * x**2)
    assert np.exp(near.log_weights) @ x == pytest.approx(1.0, abs=0.1)
    assert near.k < trusted_k(4000) == 0.7
    assert wide.k > 0.7
    assert trusted_k(100) == pytest.approx(0.5)


def test_what_is_not_reweighted_keeps_its_weight():
    found = smooth(np.full(50, 3.0))
    assert np.exp(found.log_weights) == pytest.approx(np.full(50, 0.02))
    assert found.k == -np.inf


def test_a_tail_of_ties_is_not_trusted():
    logs = np.zeros(100)
    logs[:3] = 1.0
    assert smooth(logs).k == np.inf
