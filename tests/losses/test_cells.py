"""Observations of one column that are counted in cells, against the loss of every single one."""

import numpy as np
import pytest
from support.builders import mdn

import nsmbayes as nsm
from nsmbayes.calibration import CountedProblem
from nsmbayes.losses import DEFAULT_NOISE_LEVELS, NSMSetting
from nsmbayes.losses.blocks import losses_at
from nsmbayes.losses.cells import MANY_IN_LINE, Cells, CountedLoss
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import PlateauIMQ, Weighting

THETA = np.random.default_rng(1).normal(0, 0.3, (16, 2))
N = MANY_IN_LINE + 1000


def observed():
    x = np.random.default_rng(0).standard_normal((N, 1))
    x[:300] += 30
    x[0], x[1] = 1e100, -1e12
    return x


@pytest.fixture(scope="module")
def counted():
    x = observed()
    centre = fit_location_scatter(x)
    weighting = Weighting(PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0, columns=1), centre)
    setting = NSMSetting.of(mdn(1), weighting, DEFAULT_NOISE_LEVELS, whiten=True)
    multiples = np.where(np.abs(x[:, 0] - 1) < 0.5, 0.3, 1.0)
    return CountedLoss.of(setting, Cells.of(x, centre, DEFAULT_NOISE_LEVELS[0]), multiples), multiples


def test_the_loss_is_that_of_all_observations_up_to_hundredths_of_a_nat(counted):
    counted, multiples = counted
    [exact] = losses_at([counted.setting.loss(observed()).reweighted(multiples)], THETA)
    [cells] = losses_at([counted.loss], THETA)
    difference = cells.sum(axis=1) - exact.sum(axis=1)
    assert np.std(exact.sum(axis=1)) > 100  # nats: so much there is to reproduce
    assert np.std(difference) < 0.05
    wide = Cells.of(observed(), counted.setting.weighting.centre, 10 * DEFAULT_NOISE_LEVELS[0])
    [coarse] = losses_at([CountedLoss.of(counted.setting, wide, multiples).loss], THETA)
    assert np.std(coarse.sum(axis=1) - exact.sum(axis=1)) > 10 * np.std(difference)  # cells can be too wide


def test_rows_have_the_losses_of_their_cells(counted):
    counted, multiples = counted
    [exact] = losses_at([counted.setting.loss(observed()).reweighted(multiples)], THETA)
    rows = np.array([0, 1, 5, 400, N - 1])
    scale = np.abs(exact).max()
    np.testing.assert_allclose(counted.row_losses(THETA, rows), exact[:, rows], atol=0.02 * scale)
    by_row = np.stack([counted.by_row(values) for values in next(counted.blocks(THETA))])
    np.testing.assert_allclose(by_row, counted.row_losses(THETA, np.arange(N)))


def test_cells_hold_every_observation_once(counted):
    cells = counted[0].cells
    assert cells.counts.sum() == cells.n == N
    np.testing.assert_array_equal(np.bincount(cells.of_row, minlength=len(cells.x)), cells.counts)
    assert len(cells.x) & (len(cells.x) - 1) == 0
    assert cells.x[cells.of_row[0], 0] == 1e100
    in_bulk = np.abs(observed()[:, 0]) < 5
    assert np.abs(observed() - cells.x[cells.of_row])[in_bulk].max() < DEFAULT_NOISE_LEVELS[0] / 10


def test_resamples_vary_as_those_of_single_observations_do(counted):
    """The variance of a resampled total, over 4,000 resamples, is known to 2.2 %: 8 % is exceeded once in 4,000."""
    cells = counted[0].cells
    relative = cells.resample_counts(4000, np.random.default_rng(0))
    np.testing.assert_allclose(relative @ cells.counts, N)
    value = np.tanh(cells.x[:, 0])
    totals = relative @ (cells.counts * value)
    expected = N * np.var(value[cells.of_row])
    assert totals.var() == pytest.approx(expected, rel=0.08)


def test_posteriors_of_one_column_are_those_of_the_whole_loss():
    prior = nsm.GaussianPrior(np.zeros(2), np.eye(2))
    made = nsm.NSMBayes(prior, calibration=None, noise_levels=(0.2, 0.8))
    made.append_simulations(prior.sample(200, seed=0), np.random.default_rng(0).standard_normal((200, 1)) * 1e13)
    made.adopt(mdn(1))
    posterior = made.build_posterior(np.clip(observed(), -1e12, 1e12))
    assert "cells of the 6,000 observations" in posterior.summary()
    assert posterior.weights.shape == (N,)
    assert posterior.losses(posterior.mean).shape == (N,)
    assert posterior.noise_error() == 0.0
    influence = posterior.leave_one_out()
    assert influence.kl.shape == (N,)
    assert influence.kl[0] < 1e-6 < influence.kl[300:].max()
    suspects = posterior.suspects
    assert suspects is not None
    full = posterior.setting.loss(posterior.x).reweighted(suspects.factor.values)
    some = posterior.sample((16,), seed=0)
    [exact], [cells] = losses_at([full], some), losses_at([posterior.target.loss], some)
    assert np.std(exact.sum(axis=1) - cells.sum(axis=1)) < 0.05
    problem = CountedProblem(posterior.target.prior, posterior.compression, made.sampler)
    assert problem.n == N
