"""Margins of mixtures by quadrature, and the loss of rows with missing cells one row at a time."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import mdn

from nsmbayes.losses import NSMSetting
from nsmbayes.losses.missing import MarginalSetting, MarginalWeighting, patterns
from nsmbayes.scatter import LocationScatter
from nsmbayes.surrogates import Frame, MarginalMixture
from nsmbayes.weights import IMQ, PlateauIMQ, Weighting

THETA = np.array([0.3, -0.4])
NAN = np.nan
X = np.array([[5.0, 4, 6], [NAN, 5, 5], [5, NAN, NAN], [4, 6, NAN], [NAN, 4, 7], [5, 5, 5], [NAN, NAN, 3]])
SCATTER = np.array([[2.0, 0.4, 0.1], [0.4, 1.5, -0.2], [0.1, -0.2, 1.0]])
CENTRE = LocationScatter.from_scatter(np.full(3, 5.0), SCATTER, "mcd")


_each = eqx.filter_jit(lambda loss, theta: loss.each(theta))


def of_each(loss, theta):
    return np.asarray(_each(loss, jnp.asarray(theta)))


def test_patterns():
    found = [(pattern.columns.tolist(), pattern.rows.tolist()) for pattern in patterns(X)]
    assert found == [([0, 1, 2], [0, 5]), ([0, 1], [3]), ([1, 2], [1, 4]), ([0], [2]), ([2], [6])]


@pytest.mark.parametrize("h", [0.0, 0.7])
@pytest.mark.parametrize("columns", [(0, 2), (1,)])
def test_margins_are_integrals(x64, h, columns):
    """Of the density of x + h L e over the other columns, by the trapezoidal rule; derivatives by differences."""
    density, seen = mdn(3, components=2), np.array(columns)
    unseen = np.setdiff1d(np.arange(3), seen)
    logs, means, covariances = density.mixture(density.scale_theta(jnp.asarray(THETA)))
    scale, centre = np.asarray(density.scale_x.scale), np.asarray(density.scale_x.centre)
    means, covariances = centre + scale * np.asarray(means), scale[:, None] * np.asarray(covariances) * scale
    covariances = covariances + h**2 * SCATTER
    spreads = np.sqrt(covariances[:, unseen, unseen])
    ends = (means[:, unseen] - 8 * spreads).min(axis=0), (means[:, unseen] + 8 * spreads).max(axis=0)
    lines = np.linspace(*ends, 800)
    grid = np.stack(np.meshgrid(*lines.T, indexing="ij"), axis=-1).reshape(-1, len(unseen))
    cell = (lines[1] - lines[0]).prod()

    def log_margin(cells):
        x = np.empty((len(grid), 3))
        x[:, seen], x[:, unseen] = cells, grid
        total = 0.0
        for weight, mean, covariance in zip(np.exp(logs), means, covariances, strict=True):
            r = x - mean
            square = (r * np.linalg.solve(covariance, r.T).T).sum(axis=1)
            total += weight * np.exp(-0.5 * square).sum() / np.sqrt(np.linalg.det(2 * np.pi * covariance))
        return np.log(total * cell)

    margin, L = MarginalMixture.of(density, seen), np.linalg.cholesky(SCATTER[np.ix_(seen, seen)])
    point, step = means[:, seen].mean(axis=0) + 0.3, 1e-3
    if h == 0:
        ours = float(margin.log_prob(jnp.asarray(THETA), jnp.asarray(point)))
        assert ours == pytest.approx(log_margin(point), rel=1e-6)
    at = margin.derivatives_at(jnp.asarray(THETA), Frame(jnp.asarray(point), jnp.asarray(L)), h)
    score, laplacian = at(jnp.zeros((1, len(seen))))
    moved = np.array([[log_margin(point + s * step * column) for s in (-1, 0, 1)] for column in L.T])
    np.testing.assert_allclose(score[0], (moved[:, 2] - moved[:, 0]) / (2 * step), rtol=1e-5, atol=1e-6)
    curvature = (moved[:, 2] - 2 * moved[:, 1] + moved[:, 0]) / step**2
    np.testing.assert_allclose(laplacian[0], curvature.sum(), rtol=1e-4, atol=1e-4)


def test_each_row_has_the_loss_of_its_own_margin(x64):
    density, weight = mdn(3), PlateauIMQ(radius=1.0, zeta=1.0, cutoff_radius=5.0, columns=1)
    setting = MarginalSetting(density, MarginalWeighting(weight, CENTRE), (0.0,), True)
    multiples = np.linspace(0.2, 1.4, len(X))
    each = of_each(setting.loss(X).reweighted(multiples), THETA)
    expected, weights = [], []
    for row, multiple in zip(X, multiples, strict=True):
        seen = np.flatnonzero(~np.isnan(row))
        part = LocationScatter.from_scatter(np.full(len(seen), 5.0), SCATTER[np.ix_(seen, seen)], "mcd")
        weighting = Weighting(weight.for_columns(len(seen)), part)
        alone = NSMSetting.of(MarginalMixture.of(density, seen), weighting, (0.0,), whiten=True)
        expected.append(multiple * float(of_each(alone.loss(row[None, seen]), THETA)[0]))
        weights.append(weighting.at(row[None, seen])[0])
    np.testing.assert_allclose(each, expected, rtol=1e-10)
    np.testing.assert_allclose(setting.weighting.at(X), weights, rtol=1e-12)


def test_noise_rules_of_the_parts_agree_with_finer_ones(x64):
    """Loss differences between two parameters, with one rule per row and with many."""
    rng = np.random.default_rng(0)
    x = 5 + rng.standard_normal((300, 3))
    x[rng.random(x.shape) < 0.3] = NAN
    x = x[~np.isnan(x).all(axis=1)]
    setting = MarginalSetting(mdn(3), MarginalWeighting(IMQ(zeta=1.0), CENTRE), (0.3, 1.0), True)
    losses = [setting.loss(x, rules=rules, seed=rules) for rules in (1, 16)]
    difference = [of_each(loss, THETA) - of_each(loss, THETA + 0.1) for loss in losses]
    assert abs((difference[0] - difference[1]).sum()) < 4 * np.std(difference[0] - difference[1]) * np.sqrt(len(x))
    assert np.std(difference[0] - difference[1]) < 0.5 * np.std(difference[1])
