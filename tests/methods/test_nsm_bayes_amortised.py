"""NSM-Bayes-amortised: the posterior of NSM-Bayes, from statistics."""

import functools
import pickle

import numpy as np
import numpyro.distributions as dist
import pytest
from support.known_mixtures import skewed, skewed_data, skewed_prior, with_density

import nsmbayes as nsm
from nsmbayes.calibration import InterpolatedProblem, PathCalibration
from nsmbayes.errors import InputError
from nsmbayes.losses.pieces import Piece
from nsmbayes.posteriors import AmortisedPosterior
from nsmbayes.samplers import each_loss

pytestmark = pytest.mark.usefixtures("optimised")


@functools.cache
def method(d, kind=nsm.NSMBayesAmortised):
    return with_density(kind(skewed_prior(d), calibration=None, excess=None), d)


@functools.cache
def posterior(d, n=60):
    return method(d).build_posterior(skewed_data(d, n, outliers=n // 10))


def assert_alike(one, other, means=0.15, sds=0.1):
    """Within the error of 2,000 draws: of a mean 0.03 sd, of an sd 2 to 4 %."""
    assert np.abs((one.mean - other.mean) / other.std).max() < means
    assert np.abs(one.std / other.std - 1).max() < sds


@pytest.mark.parametrize("d", [1, 2])
def test_it_is_the_posterior_of_nsm_bayes(d):
    teacher = method(d, nsm.NSMBayes).build_posterior(posterior(d).x)
    assert_alike(posterior(d), teacher)
    assert posterior(d).interpolation_error < 0.05
    assert posterior(d).converged
    np.testing.assert_allclose(posterior(d).weights, teacher.weights)
    assert np.corrcoef(posterior(d).influence(), teacher.influence())[0, 1] > 0.95
    if d == 1:  # in more columns the nodes for the noise differ
        theta = teacher.sample((20,), seed=0)
        assert np.std(posterior(d).log_prob(theta) - teacher.log_prob(theta)) < 0.05
        np.testing.assert_allclose(posterior(d).losses(theta[0]), teacher.losses(theta[0]), atol=0.02)


def test_the_density_is_that_of_the_parameters_themselves():
    """Under a bounded prior as well, for which samplers work with other parameters; nothing outside its support."""
    box = dist.Uniform(np.array([-2.0, -3.0]), np.array([3.0, 1.0])).to_event(1)
    bounded = posterior(1).with_prior(box)
    theta = posterior(1).sample((50,), seed=0)
    theta = theta[((theta > [-2, -3]) & (theta < [3, 1])).all(axis=1)]
    free = posterior(1).log_prob(theta) - posterior(1).prior.log_prob(theta)
    assert len(theta) > 20
    assert np.ptp(bounded.log_prob(theta) - free) < 0.05  # a flat prior; references may be others
    outside = [[3.5, 0.0], [0.0, 1.5]]
    assert (bounded.log_prob(outside) == -np.inf).all()
    kept = method(1).posterior_from(bounded.statistics, prior=box)
    np.testing.assert_allclose(kept.log_prob(theta), bounded.log_prob(theta), rtol=1e-9)
    assert (kept.log_prob(outside) == -np.inf).all()


def test_many_observations():
    """As sharp as the number of observations says, in one column and in several."""
    for d, n in ((1, 20_000), (2, 2000)):
        many = posterior(d, n)
        assert many.interpolation_error < 0.1
        assert np.abs((many.mean - np.r_[np.ones(d), 0.0]) / many.std).max() < 4
        assert many.std.max() < 3 / np.sqrt(n)


def test_more_and_fewer_observations():
    first, new = posterior(2), skewed_data(2, 40, seed=9)
    more = first.update(new)
    assert more.n == 100
    assert more.renewal == ""
    assert_alike(more, method(2).build_posterior(np.concatenate([first.x, new])), means=0.3, sds=0.2)  # another frame
    setting, summary = first.setting, first.summarised
    piece = Piece.of(setting, new, np.ones(40), seed=1 << 32)
    sums = summary.sums + piece.summed(summary.loss.interpolation)[0]
    np.testing.assert_allclose(more.summarised.sums.A, sums.A, rtol=1e-10)
    fewer = more.remove(range(60, 100))
    np.testing.assert_array_equal(fewer.x, first.x)
    assert_alike(fewer, first)
    np.testing.assert_array_equal(more.remove(np.arange(100) >= 60).x, first.x)
    assert more.losses(first.mean).shape == (100,)
    assert "build the posterior anew" in more.update(new).renewal


def test_updates_wait_until_draws_are_asked_for():
    first, new = posterior(1), skewed_data(1, 30, seed=9)
    half = first.update(new[:20])
    both = half.update(new[20:])
    assert both.n == 90
    assert both.statistics.n == 90
    again = pickle.loads(pickle.dumps(both))
    assert not any("draws" in vars(each) for each in (half, both, again))
    assert_alike(both, first.update(new))
    assert "draws" in vars(both)
    assert "draws" not in vars(half)
    np.testing.assert_array_equal(again.mean, both.mean)
    assert "NSM-Bayes-amortised" in again.summary()


def test_what_is_added_is_not_checked_for_excess_and_the_summary_says_so():
    one = with_density(nsm.NSMBayesAmortised(skewed_prior(1), calibration=None), 1)
    first = one.build_posterior(skewed_data(1, 40))
    said = "after the first 40 were added later and not checked for excess"
    assert said not in first.summary()
    assert said in first.update(skewed_data(1, 20, seed=9)).summary()


def test_another_prior_and_rate():
    narrow = nsm.GaussianPrior(np.zeros(2), 0.05 * np.eye(2))
    first = posterior(1)
    assert_alike(first.with_prior(narrow), method(1).build_posterior(first.x, prior=narrow))
    assert np.abs(first.with_prior(narrow).mean).max() < np.abs(first.mean).max()
    assert_alike(first.with_beta(0.25), method(1).build_posterior(first.x, beta=0.25))
    assert first.with_beta(0.25).std.min() > 1.3 * first.std.min()
    bounded = dist.Uniform(np.array([0.0, -0.5]), np.array([0.9, 0.5])).to_event(1)
    draws = first.with_prior(bounded).sample((500,), seed=0)
    assert ((draws > [0, -0.5]) & (draws < [0.9, 0.5])).all()


def test_statistics_without_the_data(tmp_path):
    first, theta = posterior(1), np.array([[1.0, 0.0], [0.9, 0.1]])
    first.statistics.save(tmp_path / "sums")
    kept = nsm.load(tmp_path / "sums")
    assert kept.n == 60
    assert not any(np.isin(first.x, array).any() for array in kept.arrays.values())
    again = method(1).posterior_from(kept)
    np.testing.assert_allclose(again.log_prob(theta), first.log_prob(theta), rtol=1e-12)
    assert_alike(again, first)
    assert "Its observations are not stored" in again.summary()
    with pytest.raises(InputError, match="Weights are not known"):
        _ = again.weights
    with pytest.raises(InputError, match="another network"):
        method(2).posterior_from(kept)
    for name, damage in {"sizes": lambda a: 0 * a, "A": lambda a: a[:, 1:], "B": lambda a: np.nan * a}.items():
        kept._replace(arrays=kept.arrays | {name: np.ascontiguousarray(damage(kept.arrays[name]))}).save(
            tmp_path / "sums", overwrite=True
        )
        with pytest.raises(InputError):
            nsm.load(tmp_path / "sums")


def test_calibration_sees_resamples_of_the_observations():
    first = posterior(1)
    piece, loss = first.summarised.pieces[0], first.summarised.loss
    problem = InterpolatedProblem(first.target.prior, loss, piece, method(1).sampler)
    counts = problem.resample_counts(5, np.random.default_rng(0))
    assert (counts[:, : first.n].sum(axis=1) == first.n).all()
    positions = first.thinned(20)
    totals = problem.total_losses(first.target, positions, counts)
    each = each_loss(first.target, positions)
    np.testing.assert_allclose(totals.full, each.sum(axis=1), rtol=1e-8)
    np.testing.assert_allclose(totals.resampled, counts @ each.T, rtol=1e-6, atol=1e-6)
    calibrated = with_density(nsm.NSMBayesAmortised(skewed_prior(1), excess=None), 1).build_posterior(first.x)
    assert calibrated.calibration is not None
    assert 0 < calibrated.beta <= 1


def test_excess_batches_and_streams():
    own = with_density(nsm.NSMBayesAmortised(skewed_prior(1), calibration=None), 1)
    x = skewed_data(1, 80)
    x[:20] = 9 + 0.1 * np.random.default_rng(0).standard_normal((20, 1))
    clustered = own.build_posterior(x)
    assert clustered.weights[:20].max() < 0.1
    assert "too many" in clustered.outliers()[0].reason
    [asked] = own.build_posteriors([x], progress=False)  # as it is alone
    np.testing.assert_array_equal(asked.mean, clustered.mean)
    sets = [skewed_data(1, n, seed=n) for n in (30, 50)]
    batch = own.build_posteriors(sets, beta=1.0, excess=False, progress=False)
    assert len(batch) == 2
    assert batch.mean.shape == batch.r_hat.shape == batch.ess.shape == (2, 2)
    assert batch.covariance.shape == (2, 2, 2)
    assert batch.sample(7).shape == (2, 7, 2)
    assert "by distance alone" in batch[1].summary()
    assert [each.n for each in method(1).stream(np.split(x, 4), beta=1.0)] == [20, 40, 60, 80]


def test_certificate_pickle_and_saved_method(tmp_path):
    first = posterior(1)
    assert first.certificate.checks["A4"].holds is False  # nothing is known about the density of this test
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).mean, first.mean)
    first.save(tmp_path / "posterior")
    np.testing.assert_allclose(nsm.load(tmp_path / "posterior").mean, first.mean)


def turned_round():
    """A prior with the parameters of the method in another order."""
    return nsm.IndependentPrior(dict.fromkeys(reversed(method(1).parameter_names), dist.Normal()))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (lambda: nsm.NSMBayesAmortised(skewed_prior(1), noise_levels=(0.0,)), "noise_levels"),
        (lambda: nsm.NSMBayesAmortised(skewed_prior(1), whiten=False), "whiten"),
        (lambda: nsm.NSMBayesAmortised(skewed_prior(2), surrogate="maf"), "surrogate"),
        (lambda: method(1).build_posterior(posterior(1).x, prior=skewed_prior(2)), "prior"),
        (lambda: method(1).build_posterior(posterior(1).x, beta=-1.0), "beta"),
        (lambda: method(1).build_posterior(np.full((5, 1), np.nan)), "x"),
        (lambda: method(1).build_posterior(np.ones((5, 2))), "x"),
        (lambda: method(1).build_posteriors([]), "datasets"),
        (lambda: method(1).build_posteriors(None), "datasets"),
        (lambda: method(1).build_posteriors({"a": skewed_data(1, 20)}), "datasets"),
        (lambda: posterior(1).with_prior(turned_round()), "prior"),
        (lambda: method(1).build_posterior(posterior(1).x, prior=turned_round()), "prior"),
        (lambda: posterior(1).remove(np.ones(3, bool)), "rows"),
        (lambda: method(1).build_posteriors([posterior(1).x, np.ones((5, 2))], progress=False), "datasets"),
        (lambda: method(1).build_posteriors([np.full((5, 1), np.nan)] * 9, progress=False), "datasets"),
        (lambda: posterior(1).remove([60]), "rows"),
        (lambda: posterior(1).remove([]), "rows"),
        (lambda: posterior(1).update(np.ones((3, 2))), "x_new"),
        (lambda: posterior(1).with_prior(skewed_prior(2)), "prior"),
        (lambda: method(1).posterior_from("sums"), "statistics"),
    ],
)
def test_bad_input(wrong, named):
    with pytest.raises(InputError, match=f"`{named}`"):
        wrong()


def test_draws_of_the_density():
    x = skewed(1).draw(np.array([[1.0, 0.0], [5.0, -1.0]]), 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(x.mean(axis=(1, 2)), [1.6, 5 + 0.6 * np.exp(-1)], atol=0.03)


def _batch_method(**options):
    return with_density(nsm.NSMBayesAmortised(skewed_prior(1), **options), 1)


def test_many_data_sets_at_once_are_those_one_by_one():
    """Means within 0.25 sd and sds within 20 %, of about 500 effective draws each: six standard errors."""
    own = _batch_method(excess=None, calibration=None)
    sets = [skewed_data(1, n, outliers=n // 10, seed=n) for n in (30, 31, 40, 50, 60, 70, 80, 90)]
    batch = own.build_posteriors(sets, beta=1.0, progress=False)
    assert len(batch) == 8
    assert (batch.beta == 1).all()
    assert batch.r_hat.max() < 1.1
    for i in (0, 7):
        alone = own.build_posterior(sets[i], beta=1.0)
        std = np.sqrt(np.diag(alone.covariance))
        np.testing.assert_allclose(batch.mean[i], alone.mean, atol=0.25 * std.max())
        np.testing.assert_allclose(np.sqrt(np.diag(batch.covariance[i])), std, rtol=0.2)
        np.testing.assert_allclose(batch[i].mean, batch.mean[i])
        np.testing.assert_allclose(batch[i].weights, alone.weights, rtol=1e-9)
        assert "NSM-Bayes-amortised" in batch[i].summary()
    again = own.build_posteriors(sets, beta=1.0, progress=False)
    np.testing.assert_array_equal(again.draws[3], batch.draws[3])


@pytest.mark.slow
def test_blocks_of_a_gpu_are_put_together_in_order(monkeypatch):
    """The path of a GPU, taken on a processor, at calibrated rates; tolerances as above, for half as many draws."""
    from nsmbayes.calibration import batched
    from nsmbayes.losses import lines
    from nsmbayes.methods import batches, line_targets
    from nsmbayes.samplers import compiled

    own = _batch_method(excess=None, calibration=PathCalibration(bootstraps=20, largest=0.8))
    sets = [skewed_data(1, n, seed=n) for n in (30, 31, 40, 50, 60, 70, 80, 90, 91)]
    expected = own.build_posteriors(sets, draws=250, progress=False)
    for module in (batches, line_targets, lines, batched, compiled):
        monkeypatch.setattr(module, "on_processor", lambda: False)
    for name, size in (("_FEW_ON_GPU", 4), ("_ON_GPU", {"stage": 96, "stages": 6}), ("_THOROUGH", {"components": 4})):
        monkeypatch.setattr(line_targets, name, size)
    monkeypatch.setattr(batched, "_SETS_ON_GPU", 2)
    batch = own.build_posteriors(sets, draws=250, progress=False)
    spread = np.sqrt(np.einsum("kii->ki", expected.covariance))
    np.testing.assert_allclose(batch.beta, expected.beta, rtol=0.5)
    np.testing.assert_allclose((batch.mean - expected.mean) / spread, 0, atol=0.35)


@pytest.mark.slow
def test_many_data_sets_are_calibrated_each():
    own = _batch_method(excess=None)
    sets = np.stack([skewed_data(1, 40, seed=seed) for seed in range(8)])
    batch = own.build_posteriors(sets, draws=250, progress=False)
    assert batch.draws[0].shape == (4, 250, 2)
    assert ((batch.beta > 0) & (batch.beta <= 1)).all()
    assert batch[2].calibration is not None
    alone = own.build_posterior(sets[2])
    assert batch.beta[2] == pytest.approx(alone.beta, rel=0.5)


@pytest.mark.slow
def test_where_the_sampler_does_not_arrive_data_sets_are_built_alone(monkeypatch):
    from nsmbayes.methods import line_targets

    monkeypatch.setattr(line_targets, "_ENOUGH", 2.0)
    monkeypatch.setattr(line_targets, "_LEAST", 2.0)
    own = _batch_method(excess=None, calibration=PathCalibration(bootstraps=20))
    sets = [skewed_data(1, 30, seed=seed) for seed in range(8)]
    batch = own.build_posteriors(sets, draws=250, progress=False)
    assert all(isinstance(one, AmortisedPosterior) for one in batch)
    alone = _batch_method(excess=None, calibration=PathCalibration(bootstraps=20), draws=250).build_posterior(sets[1])
    np.testing.assert_array_equal(batch[1].mean, alone.mean)


def test_observations_outside_the_simulations_are_told_once():
    own = _batch_method(excess=None, calibration=None)
    sets = [skewed_data(1, 30, seed=seed) for seed in range(8)]
    sets[3][:2] = own.x_range[1] + 1e3
    sets[5][:1] = own.x_range[0] - 1e3
    with pytest.warns(UserWarning, match=r"3 of 240 observations .* \(data sets 3, 5\)") as told:
        own.build_posteriors(sets, beta=1.0, draws=50, progress=False)
    assert len(told) == 1
