"""How far out observations are under a mixture: against SciPy, and against how often that happens."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2, norm
from support.known_location import draw, location

from nsmbayes._internal.precision import double_precision
from nsmbayes.weights.tails import expected_beyond, kept_in_tail, tail_shares


@pytest.mark.parametrize("d", [1, 3, 8])
@double_precision
def test_tail_shares_are_those_of_the_components(d):
    """One column exactly; in more the cube root is nearly normal, to a fifth where a share is above 1e-4."""
    density, theta = location(d), np.full(d, 0.3)
    x = draw(density, theta, 300, np.random.default_rng(0))
    C, wanted = np.asarray(density.covariance), np.zeros(300)
    for weight, shift, factor in ((0.7, 0, 1), (0.3, 1, 2)):
        offsets = x - theta - shift
        squares = np.einsum("ni,ij,nj->n", offsets, np.linalg.inv(factor * C), offsets)
        wanted += weight * chi2.sf(squares, d)
    found = np.asarray(tail_shares(jnp.asarray(theta), density, jnp.asarray(x)))
    seen = wanted > 1e-4
    assert seen.mean() > 0.95
    np.testing.assert_allclose(found[seen], wanted[seen], rtol=1e-6 if d == 1 else 0.2)


@pytest.mark.parametrize("d", [1, 4])
def test_good_observations_are_hardly_ever_too_far(d):
    """Of 40 sets of 100, about 0.05 rows a set are expected to lose half; far rows lose all, at any size of data."""
    density, lost = location(d), 0
    for seed in range(40):
        x = draw(density, np.zeros(d), 100, np.random.default_rng(seed))
        lost += int((kept_in_tail(expected_beyond(density, np.zeros((1, d)), x)) < 0.5).sum())
    assert lost <= 12
    x[7], x[8] = 40.0, 1e9
    assert kept_in_tail(expected_beyond(density, np.zeros((1, d)), x))[7:9].max() < 1e-6


def test_several_that_are_a_little_too_far_are_told_together():
    """Against counts over all pairs; a lone one at the same place keeps its weight."""
    n, rng = 200, np.random.default_rng(3)
    expected = np.sort(n * rng.random(n))
    expected[0] = 0.12
    alone = kept_in_tail(expected)
    assert alone[0] > 0.95
    expected[:4] = 0.09, 0.1, 0.11, 0.12
    together = kept_in_tail(expected)
    assert together[:4].max() < 0.5
    expected[:4] = 1e-12, 1e-11, 1e-10, 0.12  # many more are far away: that says nothing of this one
    assert kept_in_tail(expected)[3] > 0.95
    z = norm.isf(expected / (2 * n))
    pairs = 1 / (1 + (expected / expected[:, None]) ** 2) / (1 + np.exp((z - z[:, None] - 1.5) / 0.15))
    counts = np.clip(pairs.sum(axis=1) + 0.5, 1, 3)
    np.testing.assert_allclose(kept_in_tail(expected), 1 / (1 + (0.05 * counts / expected) ** 4), atol=0.01)


def test_what_is_kept_is_smooth_in_the_data():
    expected = np.concatenate([[0.1, 0.11], np.linspace(0.3, 100, 98)])
    places = np.linspace(0.05, 0.2, 3001)
    kept = np.array([kept_in_tail(np.concatenate([[place], expected]))[:3] for place in places])
    assert np.abs(np.diff(kept, axis=0)).max() < 0.005


def test_many_rows_are_asked_in_blocks():
    density, thetas = location(2), np.array([[0.0, 0.1], [0.2, -0.3]])
    x = draw(density, np.zeros(2), 2300, np.random.default_rng(1))
    found = expected_beyond(density, thetas, x)
    parts = [2.3 * expected_beyond(density, thetas, part) for part in (x[:1000], x[1000:2000])]
    np.testing.assert_allclose(found[:2000], np.concatenate(parts), rtol=1e-9)
