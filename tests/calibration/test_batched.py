"""Calibration of many data sets as one program: that of each alone, and its parts by brute force."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.known_mixtures import skewed, skewed_data

import nsmbayes as nsm
from nsmbayes._internal.precision import double_precision
from nsmbayes.calibration import PathCalibration, SampledProblem, SurrogateTest, batched, importance
from nsmbayes.losses import NSMSetting
from nsmbayes.losses.lines import Whitened, line_losses
from nsmbayes.losses.noise_levels import DEFAULT_NOISE_LEVELS
from nsmbayes.methods import batches, line_targets
from nsmbayes.methods.line_targets import LineTargets
from nsmbayes.methods.pool import Pool
from nsmbayes.priors import unconstrained
from nsmbayes.samplers import AdaptiveSampler, Draws, Target, compiled
from nsmbayes.samplers.compiled import Effort, Sampled, row_of
from nsmbayes.samplers.students import Population, around
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.weights import PlateauIMQ, Weighting

WEIGHT = PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0)
SIZES = (30, 60, 30)


def sets():
    found = [skewed_data(1, n, seed=n + i) for i, n in enumerate(SIZES)]
    found[1][:3] = [[40.0], [-15.0], [3.0]]
    return found


def setting_of(x):
    return NSMSetting.of(skewed(1), Weighting(WEIGHT, fit_location_scatter(x)), DEFAULT_NOISE_LEVELS, whiten=True)


def whitened(some):
    centres = [setting_of(x).weighting.centre for x in some]
    location, scale = (
        np.array([float(np.ravel(a)[0]) for a in part])
        for part in zip(*((c.location, c.factor) for c in centres), strict=True)
    )
    return Whitened.of(some, location, scale)


@double_precision
def test_losses_of_resamples_are_sums_over_their_observations():
    data, rng = whitened(sets()), np.random.default_rng(0)
    losses = line_losses(skewed(1), WEIGHT, DEFAULT_NOISE_LEVELS, data)
    rows, theta = batched.Resampling.of(data, WEIGHT), jnp.array([0.4, -0.3])
    for i, x in enumerate(sets()):
        each = np.asarray(setting_of(x).loss(x).each(theta))
        counts = np.zeros((5, rows.y.shape[1]))
        counts[:, : len(x)] = rng.multinomial(len(x), np.full(len(x), 1 / len(x)), size=5)
        loss = row_of(losses.stacked, losses.axes, i)
        shares = batched.resample_shares(
            loss, jnp.asarray(rows.y[i]), jnp.asarray(rows.overall[i]), jnp.asarray(counts)
        )
        found = shares @ loss.at_points(theta).ravel()
        np.testing.assert_allclose(found, counts[:, : len(x)] @ each, rtol=1e-7)


@double_precision
def test_coverage_is_that_of_numpy():
    rng = np.random.default_rng(1)
    positions, logs = rng.standard_normal((400, 3)), rng.standard_normal((50, 400))
    expected = importance.reweighted_coverage(positions, logs, np.full(3, 0.4), 0.1)
    found = batched.reweighted_coverage(*map(jnp.asarray, (positions, logs, np.full(3, 0.4))), 0.1)
    assert 0 < expected[0] < 1
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def lines_of(some):
    prior = unconstrained(nsm.GaussianPrior([0.0, 0.0], [1.0, 1.0]))
    centres = [setting_of(x).weighting.centre for x in some]
    pool = Pool.of(prior, skewed(1), 0)
    return LineTargets.of(prior, WEIGHT, DEFAULT_NOISE_LEVELS, some, centres, pool, Effort(2, 300, offers=True), 0)


class Known(SampledProblem):
    """One of several posteriors that were sampled together."""

    def __init__(self, prior, loss, n, sampled: Sampled):
        super().__init__(prior, loss, n, AdaptiveSampler())
        self.prior, self.loss, self.sampled = prior, loss, sampled

    def draw(self, beta, seed):
        one, unknown = self.sampled, np.full(2, np.nan)
        used = np.isfinite(one.log_proposals)
        proposal = around(one.positions.reshape(-1, 2))
        visited = Population(
            *(part[used] for part in (one.visited, one.log_priors, one.losses, one.log_proposals)),
            (proposal,),
            proposal,
        )
        draws = Draws(one.positions, one.acceptance, np.zeros(2, int), unknown, unknown, unknown, visited=visited)
        return Target(self.prior, self.loss, jnp.asarray(beta)), draws


@double_precision
@pytest.mark.parametrize("target", [0.95, 0.99])
def test_learning_rates_are_those_of_each_data_set_alone(target):
    """With the same draws and resamples; the higher target is met at lower rates only."""
    some = sets()
    lines, calibration = lines_of(some), PathCalibration(bootstraps=60, target=target, grid=9)
    drawn, arrived = lines.sample(np.ones(3))
    assert arrived.all()
    targets = lines.targets(np.arange(3), np.ones(3))
    rows = batched.Resampling.of(lines.data, WEIGHT)
    many = batched.calibrate_many(calibration, targets, lines.axes, rows, drawn, seed=3)
    for i, (x, found) in enumerate(zip(some, many, strict=True)):
        problem = Known(lines.prior, setting_of(x).loss(x), len(x), drawn.only(i))
        alone = calibration.calibrate(problem, seed=3)
        assert found.status == alone.status
        tried = len(found.betas)  # from the largest rate down to the first that meets the target
        np.testing.assert_allclose(found.betas, alone.betas[-tried:])
        np.testing.assert_allclose(found.coverages, alone.coverages[-tried:], atol=1 / 60 + 1e-9)
        assert found.beta == found.betas[0]
        assert (found.coverages[1:] < target).all()
        assert abs(np.log(found.beta / alone.beta)) < np.log(64) / 8 + 1e-9  # one step of the grid, at most
    if target == 0.99:
        assert min(each.beta for each in many) < 1


@double_precision
def test_points_that_hardly_matter_are_left_out(monkeypatch):
    """The loss is that of all points up to what is allowed; where more is missing, the draws are no posteriors."""
    lines = lines_of(sets())
    drawn, arrived = lines.sample(np.ones(3))
    assert arrived.all()
    assert ((lines.left_out.stacked.on_squares != 0).sum(axis=(1, 2)) > 15).all()
    for i, x in enumerate(sets()):
        exact, used = setting_of(x).loss(x), row_of(lines.losses.stacked, lines.losses.axes, i)
        off = [float(used(theta) - exact(theta)) for theta in jnp.asarray(drawn.positions[i, 0, ::50])]
        assert np.abs(off).max() < 2 * line_targets._NEGLIGIBLE
        assert np.std(off) < line_targets._NEGLIGIBLE
    assert lines.are_complete(drawn, np.ones(3)).all()
    monkeypatch.setattr(line_targets, "_NEGLIGIBLE", 30.0)
    assert not lines_of(sets()).are_complete(drawn, np.ones(3)).any()


def test_proposals_serve_other_learning_rates():
    """Within 0.25 sd and 20 % of chains that were run for them, of about 300 effective draws each."""
    lines, betas = lines_of(sets()), np.array([0.8, 0.5, 0.9])
    again, arrived = lines.sample(betas, lines.sample(np.ones(3))[0])
    direct, _ = lines.sample(betas)
    assert arrived.all()
    found, expected = (each.positions.reshape(3, -1, 2) for each in (again, direct))
    spread = expected.std(axis=1)
    np.testing.assert_allclose((found.mean(axis=1) - expected.mean(axis=1)) / spread, 0, atol=0.25)
    np.testing.assert_allclose(found.std(axis=1), spread, rtol=0.2)


def test_on_a_gpu_data_sets_are_stacked(monkeypatch):
    """The path of a GPU, taken on a processor: losses in single precision, the same posteriors and learning rates."""
    some, calibration = sets(), PathCalibration(bootstraps=60, target=0.9, grid=5)
    few = {"stage": 96, "stages": 6}
    monkeypatch.setattr(line_targets, "_ON_GPU", few)
    monkeypatch.setattr(line_targets, "_THOROUGH", few)
    monkeypatch.setattr(line_targets, "_FEW_ON_GPU", 4)
    monkeypatch.setattr(line_targets, "_TOGETHER_ON_GPU", 64)
    monkeypatch.setattr(batched, "_SETS_ON_GPU", 2)
    found = []
    for on_gpu in (False, True):
        for module in (batches, line_targets, batched, compiled):
            monkeypatch.setattr(module, "on_processor", lambda on_gpu=on_gpu: not on_gpu)
        lines = lines_of(some)
        drawn, arrived = lines.sample(np.ones(3))
        assert arrived.all()
        targets, rows = lines.targets(np.arange(3), np.ones(3)), batched.Resampling.of(lines.data, WEIGHT)
        with jax.enable_x64(True):
            results = batched.calibrate_many(calibration, targets, lines.axes, rows, drawn, seed=3)
        found.append((drawn.positions.reshape(3, -1, 2), [each.beta for each in results]))
    (here, betas), (there, others) = found
    np.testing.assert_allclose(there.mean(axis=1), here.mean(axis=1), atol=0.35 * here.std(axis=1).max())
    np.testing.assert_allclose(there.std(axis=1), here.std(axis=1), rtol=0.3)
    assert np.abs(np.log(np.divide(betas, others))).max() < np.log(64) / 4 + 1e-9


def checked(theta, gradients, mean, covariance, n, response):
    """The squared shift, its noise and the number of simulations, with a width found by trying many."""
    scale, wanted = np.diag(theta.std(axis=0) ** 2), 0.1 * len(theta)
    for width in np.geomspace(0.1, 100, 20_001):
        offset = theta - mean
        squares = (offset * np.linalg.solve(covariance + width**2 * scale, offset.T).T).sum(axis=1)
        weights = np.exp(-0.5 * (squares - squares.min()))
        if weights.sum() ** 2 >= wanted * (weights**2).sum():
            break
    weights = np.where(weights > 1e-3, weights, 0)
    weights /= weights.sum()
    shifts = n * np.linalg.solve(np.linalg.cholesky(covariance), response @ gradients.T).T
    return ((weights @ shifts) ** 2).mean(), weights**2 @ (shifts**2).mean(axis=1), 1 / (weights**2).sum()


def test_checks_of_many_posteriors_are_those_by_brute_force():
    rng = np.random.default_rng(2)
    theta, gradients = rng.standard_normal((3000, 2)), rng.normal([0.1, 0.0], 1.0, (3000, 2))
    test = SurrogateTest(theta, gradients)
    means = np.array([[0.0, 0.0], [1.0, -0.5], [3.0, 3.0]])
    covariances = np.array([[[0.1, 0.02], [0.02, 0.05]], np.eye(2), 0.01 * np.eye(2)])
    n = np.array([100, 20, 1000])
    for many, *one in zip(
        test.check_many(means, covariances, n, 0.5 * covariances), means, covariances, n, strict=True
    ):
        seen, noise, near = checked(theta, gradients, *one, 0.5 * one[1])
        np.testing.assert_allclose((many.seen, many.noise, many.near), (seen, noise, near), rtol=5e-3)
        np.testing.assert_allclose(many.ratio, max(seen - noise, 0) + noise, rtol=1e-2)
        assert many.n == one[2]
        np.testing.assert_allclose(many[:5], test.check(*one, 0.5 * one[1])[:5], rtol=1e-9)
