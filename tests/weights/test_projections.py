"""Projections: the axes themselves, sums and models along them, and groups that no column shows."""

import numpy as np
import pytest
from scipy.stats import norm
from support.known_location import draw, location

from nsmbayes.scatter import LocationScatter
from nsmbayes.weights.excess import ACROSS, LEVELS, Factor, Places, expected, smoothed
from nsmbayes.weights.projections import TIGHT, WIDE, revealing_axes
from nsmbayes.weights.tails import Tail


def hidden_group(d, n, share, distance, seed):
    """Data of the model, and a group in a random direction, half as wide, moved in units of the model's covariance."""
    density, rng = location(d), np.random.default_rng([seed, d])
    x, C = draw(density, np.zeros(d), n, rng), np.asarray(density.covariance)
    u = rng.standard_normal(d)
    k = round(share * n)
    shift = distance * np.linalg.cholesky(1.3 * C + 0.21) @ u / np.linalg.norm(u)  # the mixture's own moments
    x[:k] = 0.3 + shift + 0.5 * (x[:k] - 0.3)
    centre = LocationScatter.from_scatter(np.median(x[k:], axis=0), np.cov(x[k:].T), "mcd")
    return density, x, np.arange(n) < k, centre, shift


def test_axes_have_unit_length_and_one_points_to_the_group():
    density, x, _, centre, shift = hidden_group(12, 200, 0.15, 5.0, 0)
    axes = revealing_axes(density, np.zeros((1, 12)), x, centre)
    assert axes.shape == (WIDE + TIGHT, 12)
    np.testing.assert_allclose(np.einsum("vi,ij,vj->v", axes, np.asarray(centre.scatter), axes), 1)
    np.testing.assert_array_equal(axes, revealing_axes(density, np.zeros((1, 12)), x, centre))
    # of what the group is moved by, in the model's scale, the axis of the largest second moments sees most
    C = 1.3 * np.asarray(density.covariance) + 0.21
    seen = np.abs(axes @ shift) / np.sqrt(np.einsum("vi,ij,vj->v", axes, C, axes))
    assert seen[WIDE - 1] > 0.8 * 5.0
    assert seen[WIDE - 1] == seen.max()


def test_a_few_rows_far_away_do_not_hide_the_group():
    density, x, _, centre, shift = hidden_group(12, 200, 0.15, 5.0, 0)
    x[-4:] = 1e6 * np.random.default_rng(3).standard_normal((4, 12))
    axes = revealing_axes(density, np.zeros((1, 12)), x, centre)
    C = 1.3 * np.asarray(density.covariance) + 0.21
    seen = np.abs(axes @ shift) / np.sqrt(np.einsum("vi,ij,vj->v", axes, C, axes))
    assert seen.max() > 0.8 * 5.0


def test_the_smoothed_model_along_axes_is_a_mixture_in_one_dimension():
    density, x, _, centre, _ = hidden_group(8, 60, 0.2, 4.0, 1)
    theta = np.random.default_rng(0).standard_normal((2, 8))
    axes = revealing_axes(density, theta, x, centre)
    found, C = expected(density, theta, Places.of(x, centre, (0.4,), axes), 7), np.asarray(density.covariance)
    for axis, one in zip(axes, found[8:, 0], strict=True):
        at = (x - np.asarray(centre.location)) @ axis
        wanted = sum(
            0.5 * weight * norm.pdf(at, (each + shift - np.asarray(centre.location)) @ axis, wide)
            for each in theta
            for weight, shift, wide in (
                (0.7, 0, np.sqrt(axis @ C @ axis + 0.4**2)),
                (0.3, 1, np.sqrt(2 * axis @ C @ axis + 0.4**2)),
            )
        )
        np.testing.assert_allclose(one, 7 * 0.4 * np.sqrt(2 * np.pi) * wanted, rtol=1e-8)


@pytest.mark.parametrize(("d", "n"), [(8, 100), (20, 100)])
def test_a_group_that_columns_hardly_show_is_found(d, n):
    """A tenth of the rows at four scales: less than half is found by columns, four of five with axes."""
    alone, along, good = [], [], []
    for seed in range(8):
        density, x, bad, centre, _ = hidden_group(d, n, 0.1, 4.0, seed)
        theta = np.zeros((1, d))
        for axes, kept in ((None, alone), (revealing_axes(density, theta, x, centre), along)):
            observed = smoothed(x, x, centre, LEVELS, np.arange(n), axes)
            lambdas = expected(density, theta, Places.of(x, centre, LEVELS, axes), observed.total)
            tail = Tail(np.full(n, 100.0), np.ones(n))  # by number alone
            factor = Factor.explained(np.zeros(n), observed, lambdas, tail)
            named = np.array(["too many" in factor.evidence(row) for row in range(n)])
            kept.append(named[bad].mean())
        good.append(named[~bad].mean())
        row = int(np.flatnonzero(bad & (factor.column == ACROSS) & named)[0])
        assert "too many in a combination of columns" in factor.evidence(row)
    assert np.mean(alone) < 0.5
    assert np.mean(along) > 0.8
    assert np.mean(good) <= 0.05  # these would be told so only if they were distrusted
