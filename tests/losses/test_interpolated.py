"""Losses from statistics, against the loss of every observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.known_mixtures import skewed, skewed_data

from nsmbayes.losses import DEFAULT_NOISE_LEVELS, NSMSetting
from nsmbayes.losses.blocks import losses_at
from nsmbayes.losses.interpolated import InterpolatedLoss, Interpolation, RowLosses
from nsmbayes.losses.level_sums import block_sums
from nsmbayes.losses.pieces import Piece
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import PlateauIMQ, Weighting

LEVELS = len(DEFAULT_NOISE_LEVELS)


def parts(d, n=60):
    """A setting, observations, and parameters around the truth."""
    x = skewed_data(d, n, outliers=n // 10)
    weighting = Weighting(PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0, columns=d), fit_location_scatter(x))
    setting = NSMSetting.of(skewed(d), weighting, DEFAULT_NOISE_LEVELS, whiten=True)
    theta = np.r_[np.ones(d), 0.0] + 0.1 * np.random.default_rng(1).standard_normal((80, d + 1))
    return setting, x, theta


def interpolated(d, count=80):
    setting, x, theta = parts(d)
    return setting, x, theta, Interpolation.fit(setting, theta[:count], theta[:30], seed=0)


def with_rows(interpolation, loss):
    rows = RowLosses.of(interpolation, loss)
    sums = rows.sums(LEVELS)
    with jax.enable_x64(True):
        return InterpolatedLoss(interpolation, jnp.asarray(sums.A), jnp.asarray(sums.B), rows)


@pytest.mark.parametrize("d", [1, 2])
def test_at_a_reference_it_is_the_loss_itself(d):
    setting, x, _, interpolation = interpolated(d)
    loss = setting.loss(x)
    own = with_rows(interpolation, loss)
    for k in (0, 3):
        alone = np.zeros((LEVELS, len(interpolation.references)))
        alone[:, k] = np.asarray(interpolation.sizes)[:, k]
        with jax.enable_x64(True):
            each = np.asarray(own.rows.at(jnp.asarray(alone)))
            total = float(own.total(jnp.asarray(alone)))
        [[exact]] = losses_at([loss], np.asarray(interpolation.references)[[k]])
        np.testing.assert_allclose(each, exact, rtol=1e-9, atol=1e-9)
        assert total == pytest.approx(exact.sum(), rel=1e-9)


@pytest.mark.parametrize("d", [1, 2])
def test_sums_are_those_of_the_rows(d):
    setting, x, theta, interpolation = interpolated(d)
    own = with_rows(interpolation, setting.loss(x).reweighted(np.linspace(0, 1, len(x))))
    [each] = losses_at([own], theta[:5])
    with jax.enable_x64(True):
        totals = [float(own(jnp.asarray(t))) for t in theta[:5]]
    np.testing.assert_allclose(totals, each.sum(axis=1), rtol=1e-8)


@pytest.mark.parametrize("d", [1, 2])
def test_between_references(d):
    """Off by little at parameters that were no candidates, and by far more with two references: it needs them."""
    setting, x, _, interpolation = interpolated(d)
    few = interpolated(d, count=2)[3]
    theta = np.r_[np.ones(d), 0.0] + 0.07 * np.random.default_rng(5).standard_normal((40, d + 1))
    loss = setting.loss(x)
    [exact] = losses_at([loss], theta)
    off = [
        np.std(losses_at([with_rows(one, loss)], theta)[0].sum(axis=1) - exact.sum(axis=1))
        for one in (interpolation, few)
    ]
    assert off[0] < 0.01
    assert off[1] > 10 * off[0]


@pytest.mark.parametrize(("d", "n"), [(1, 60), (2, 60), (2, 600), (1, 6000)])
def test_pieces(d, n):
    """Blocks and cells add up to all observations, and losses come back in the order of the rows."""
    setting, _, theta, interpolation = interpolated(d)
    x = skewed_data(d, n, outliers=n // 10, seed=3)
    multiples = np.where(np.arange(n) % 7, 1.0, 0.5 if n < 5000 else 1.0)  # in cells they are averaged
    piece = Piece.of(setting, x, multiples, seed=0)
    assert piece.n == n
    assert piece.blocks == (3 if (d, n) == (2, 600) else 1)
    sums, first = piece.summed(interpolation)
    with jax.enable_x64(True):
        own = InterpolatedLoss(interpolation, jnp.asarray(sums.A), jnp.asarray(sums.B), first)
        total = float(own(jnp.asarray(theta[0])))
    each = np.full(n, np.nan)
    for losses, rows in piece.each(own, theta[:1]):
        each[rows] = losses[0]
    if d == 1:  # by lattices, or in cells and by lattices
        [[exact]] = losses_at([setting.loss(x).reweighted(multiples)], theta[:1])
        assert total == pytest.approx(exact.sum(), rel=1e-3)
        np.testing.assert_allclose(each, exact, atol=0.01 if n <= 256 else 0.1)
    else:  # every block has nodes of its own for the noise
        exact = np.concatenate([losses_at([piece.block(i)], theta[:1])[0][0] for i in range(piece.blocks)])
        np.testing.assert_allclose(each[piece.order], exact[:n], atol=0.01)
        assert total == pytest.approx(each.sum(), rel=1e-8)


def test_resamples_of_a_block_vary_as_those_of_all():
    setting, _, _, _ = interpolated(2)
    piece = Piece.of(setting, skewed_data(2, 600), np.ones(600), seed=0)
    counts = piece.resample_counts(400, np.random.default_rng(0))
    assert counts.shape == (400, 256)
    value = np.random.default_rng(1).standard_normal(256)
    assert np.std((counts - 1) @ value) == pytest.approx(np.sqrt(600) * value.std(), rel=0.15)


@pytest.mark.parametrize("count", [80, 30])
def test_sums_of_a_padded_block_are_those_of_its_rows(count):
    """By one compiled call to a level, in which no score is kept."""
    setting, x, _, interpolation = interpolated(2, count)
    piece = Piece.of(setting, x[:37], np.linspace(0.1, 1, 37), seed=3)
    block = piece.block(0)
    assert len(block.overall) == 64
    A, B = RowLosses.of(interpolation, block).sums(LEVELS)
    own = block_sums(interpolation, block)
    np.testing.assert_allclose(own.A, A, rtol=1e-10, atol=1e-10 * np.abs(A).max())
    np.testing.assert_allclose(own.B, B, rtol=1e-10, atol=1e-10 * np.abs(B).max())
    np.testing.assert_array_equal(piece.sums(interpolation).A, own.A)
