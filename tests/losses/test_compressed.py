"""A weighted subset against the loss of all observations, and a loss in blocks against the loss at once."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from support.builders import data, mdn

import nsmbayes as nsm
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.blocks import BlockedLoss, losses_at
from nsmbayes.losses.compressed import matched_weights
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import Weighting

THETA = np.random.default_rng(5).standard_normal((20, 2))
each = eqx.filter_jit(lambda loss, theta: loss.each(theta))
total = eqx.filter_jit(lambda loss, theta: loss(theta))


def setting(x, levels=(0.2, 0.8)):
    weighting = Weighting(nsm.weights.PlateauIMQ(2.0, 1.0, cutoff_radius=12.0), fit_location_scatter(x))
    return NSMSetting.of(mdn(x.shape[1]), weighting, levels, whiten=True)


def test_reweighted_loss_counts_each_observation_so_often(x64):
    x = data(3, n=30)
    loss, multiples = setting(x).loss(x), np.linspace(0, 2, 30)
    scaled = loss.reweighted(multiples)
    np.testing.assert_allclose(each(scaled, THETA[0]), multiples * each(loss, THETA[0]), rtol=1e-12)
    np.testing.assert_allclose(total(scaled, THETA[0]), multiples @ np.asarray(each(loss, THETA[0])), rtol=1e-10)


def test_some_rows_keep_their_losses(x64):
    x, rows = data(3, n=30), np.array([7, 0, 29, 7])
    loss = setting(x).loss(x)
    some = loss.only(rows)
    np.testing.assert_allclose(each(some, THETA[0]), np.asarray(each(loss, THETA[0]))[rows], rtol=1e-12)
    np.testing.assert_allclose(total(some, THETA[0]), np.asarray(each(loss, THETA[0]))[rows].sum(), rtol=1e-10)


def test_blocks_add_up_and_give_the_same_losses_row_by_row(x64):
    """With one level of no noise nothing is random, and blocks are exactly the loss at once."""
    x = data(3, n=70)
    for levels in ((0.0,), (0.2, 0.8)):
        blocked = BlockedLoss(setting(x, levels), x, 32)
        found = np.concatenate([*blocked.each(THETA)], axis=1)
        assert found.shape == (20, 70)
        np.testing.assert_allclose(blocked.total(THETA), found.sum(axis=1), rtol=1e-10)
        np.testing.assert_allclose(blocked.total(THETA, first=40), found[:, :40].sum(axis=1), rtol=1e-10)
        rows = np.array([69, 3, 35, 34, 2])
        np.testing.assert_allclose(blocked.of_rows(THETA, rows), found[:, rows], rtol=1e-10)
        if levels == (0.0,):
            whole = setting(x, levels).loss(x)
            np.testing.assert_allclose(found, losses_at([whole], THETA)[0], rtol=1e-10)
            assert np.isclose(total(blocked.block(2), jnp.asarray(THETA[0])), found[0, 64:].sum())


def test_totals_of_very_many_are_computed_in_wider_blocks(x64, monkeypatch):
    """Without noise nothing is random, and the total is the same; with noise it is that of other nodes."""
    monkeypatch.setattr("nsmbayes.losses.blocks._WIDE", 48)
    x = data(3, n=70)
    for levels, same in (((0.0,), True), ((0.2, 0.8), False)):
        blocked = BlockedLoss(setting(x, levels), x, 32)
        narrow = blocked.total(THETA)
        with monkeypatch.context() as patch:
            patch.setattr("nsmbayes.losses.blocks._FROM", 60)
            wide, few = blocked.total(THETA), blocked.total(THETA, first=40)
        assert np.allclose(wide, narrow, rtol=1e-10) == same
        np.testing.assert_allclose(wide, blocked._replace(size=48).total(THETA), rtol=1e-10)
        np.testing.assert_allclose(few, blocked.total(THETA, first=40), rtol=1e-10)


def test_matched_weights_reproduce_a_total_between_the_thetas(x64):
    """Losses are random quadratics: 40 thetas determine any sum of them, and the total at other thetas with it."""
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((5000, 6)) + np.array([0, 0, 0, 3, 3, 0])

    def losses(theta):
        a, b = theta.T
        return np.stack([np.ones(len(a)), a, b, a**2, b**2, a * b], axis=1) @ coefficients.T

    near, fresh = 0.03 * rng.standard_normal((2, 40, 2))
    start = np.full(300, 5000 / 300)
    w = matched_weights(losses(near)[:, :300], losses(near).sum(axis=1), start, 1.0)

    def error(weights):
        return np.std(losses(fresh)[:, :300] @ weights - losses(fresh).sum(axis=1))

    assert error(start) > 1
    assert error(w) < 0.1
    assert w.min() > 0


def test_matched_weights_stay_positive(x64):
    rng = np.random.default_rng(1)
    losses = rng.standard_normal((10, 40))
    w = matched_weights(losses, 10 * rng.standard_normal(10) + losses.sum(axis=1), np.ones(40), 1.0)
    assert w.min() >= 0.05
    assert (w == w.min()).any()
