"""Regions and densities of draws, also of a chain that hardly moved."""

import numpy as np
import pytest

from nsmbayes.posteriors.empirical import Empirical


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_region_is_the_ellipsoid_of_mahalanobis_distances(level):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(400, 3)) @ np.array([[1.0, 0, 0], [30.0, 0.2, 0], [0, 1e-4, 1e-3]]) + 5
    found = Empirical(draws)
    inverse = np.linalg.inv(np.cov(draws.T))
    squared = np.einsum("ni,ij,nj->n", draws - draws.mean(0), inverse, draws - draws.mean(0))
    inside = [found.covers(row, level) for row in draws]
    assert inside == list(squared <= np.quantile(squared, level))
    assert np.mean(inside) == pytest.approx(level, abs=0.005)


def test_the_region_of_a_chain_that_moved_once_is_a_piece_of_a_line():
    ends = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, -1.0]])
    found = Empirical(np.repeat(ends, [30, 70], axis=0))
    assert found.covers(ends.mean(axis=0), 0.95)
    assert found.covers(ends[0], 0.95)
    assert not found.covers(3 * ends[1] - 2 * ends[0], 0.95)  # on the line, far outside
    assert not found.covers(ends.mean(axis=0) + np.array([0.1, 0, 0.1]), 0.95)  # beside it
    assert not found.covers(ends.mean(axis=0) + np.array([0, 0.1, 0]), 0.95)  # beside it, in the constant column


def test_a_chain_that_never_moved_has_a_region_and_a_density():
    found = Empirical(np.tile([1.0, 2.0], (50, 1)))
    assert found.covers(np.array([1.0, 2.0]), 0.95)
    assert not found.covers(np.array([1.0, 2.1]), 0.95)
    grid = np.linspace(0, 4, 101)
    density = found.marginal(0, grid)
    assert grid[density.argmax()] == pytest.approx(1.0)
    assert density.mean() * 4 == pytest.approx(1.0)
