"""What moves at once is what a full computation would give, for location, scatter and factors as they were."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from support.known_mixtures import skewed_data, skewed_prior, with_density

import nsmbayes as nsm
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.explore import NLE, TRIMMED, Choices, explorer_of
from nsmbayes.explore.following import LikelihoodAnswer
from nsmbayes.explore.start import MOST
from nsmbayes.losses import NLELoss
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.losses.pieces import Piece
from nsmbayes.losses.statistics import DataStatistics
from nsmbayes.samplers.recounted import losses_at
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, Weighting

LEVELS = (0.2, 0.8)


@functools.cache
def amortised(d):
    method = with_density(nsm.NSMBayesAmortised(skewed_prior(d), calibration=None, excess=None), d)
    return explorer_of(method, skewed_data(d, 40, outliers=4))


def conjugate(make, d_x, *, noise_levels=LEVELS, n=30, **options):
    method = make(d_x, 2, noise_levels=noise_levels, excess=None, **options)
    return explorer_of(method, 0.5 * np.random.default_rng(1).standard_normal((n, d_x)), beta=0.3)


def moved(explorer, *rows, by=3.0):
    x = explorer.x.copy()
    x[list(rows)] += by
    return x


def own(view):
    return next(iter(view.answers.values()))


def in_full(explorer, x, choices):
    """The conjugate posterior of all rows, summed from nothing."""
    statistics = explorer.posterior.statistics
    weight = choices.weight(statistics.recipe.weight)
    again = DataStatistics.of(dataclasses.replace(statistics.recipe, weight=weight), x, statistics.loss.centre)
    prior = choices.prior(explorer.method.prior)
    mean, precision = gaussian_posterior(prior, again.total, choices.beta, explorer.posterior.resolution)
    return mean, np.sqrt(np.diag(np.linalg.inv(precision)))


@pytest.mark.parametrize(
    ("d_x", "options"),
    [
        (1, {}),
        (2, {}),
        (2, {"noise_levels": (0.0,)}),
        (1, {"resolution": 0.4}),
        (2, {"grid_steps": (0.5, 0.0)}),
    ],
    ids=["one column", "two columns", "no noise", "resolution", "grid steps"],
)
def test_a_drag_of_the_conjugate_posterior_is_a_full_recomputation(random_method, d_x, options):
    explorer = conjugate(random_method, d_x, **options)
    choices = dataclasses.replace(explorer.choices, zeta=0.7, beta=0.11, shift=(1.0, -0.5), width=(0.5, 2.0))
    for x in (moved(explorer, 3), moved(explorer, 3, by=-40.0), moved(explorer, 1, 5), explorer.x):
        mean, std = in_full(explorer, x, choices)
        answer = own(explorer.view(x, choices))
        np.testing.assert_allclose(answer.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(answer.std, std, rtol=1e-9)
    still = own(explorer.view(explorer.x, explorer.choices))
    np.testing.assert_allclose(still.mean, explorer.posterior.mean, rtol=1e-9)
    np.testing.assert_allclose(still.std, explorer.posterior.std, rtol=1e-9)


@pytest.mark.parametrize("d", [1, 2])
def test_a_drag_of_the_amortised_statistics_is_a_full_recomputation(d):
    explorer = amortised(d)
    posterior, interpolation = explorer.posterior, explorer.posterior.summarised.loss.interpolation
    for zeta in (1.0, 0.6):
        choices = dataclasses.replace(explorer.choices, zeta=zeta)
        for rows in ([7], [0, 12]):
            x = moved(explorer, *rows)
            ones = np.ones(len(x))
            found = explorer.sums(x, ones, np.array(rows), choices)
            weighting = Weighting(
                choices.weight(posterior.setting.weighting.weight), posterior.setting.weighting.centre
            )
            piece = Piece.of(posterior.setting._replace(weighting=weighting), x, ones, explorer.seed)
            full = piece.summed(interpolation)[0]
            np.testing.assert_allclose(found.A, full.A, rtol=1e-9, atol=1e-9 * np.abs(full.A).max())
            np.testing.assert_allclose(found.B, full.B, rtol=1e-9, atol=1e-9 * np.abs(full.B).max())


@pytest.mark.parametrize("d", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_reweighted_draws_are_those_of_the_posterior_built_again(d):
    """With the same location and scatter: a row that is far away already moves none of them."""
    explorer = amortised(d)
    x = moved(explorer, 0, by=20.0)
    view, again = explorer.view(x, explorer.choices), explorer.rebuilt(x, explorer.choices).posterior
    assert "reweighted" in view.notes[0]
    assert np.abs((own(view).mean - again.mean) / again.std).max() < 0.2
    assert np.abs(own(view).std / again.std - 1).max() < 0.12


def test_draws_that_cannot_be_reweighted_are_drawn_anew():
    explorer = amortised(1)
    choices = dataclasses.replace(explorer.choices, beta=explorer.choices.beta / 20)
    view, exact = explorer.view(explorer.x, choices), explorer.posterior.with_beta(choices.beta)
    assert "Importance draws" in view.notes[0]
    assert np.abs((own(view).mean - exact.mean) / exact.std).max() < 0.3
    assert np.abs(own(view).std / exact.std - 1).max() < 0.25


def test_nle_and_trimmed_nle_are_those_of_the_data_as_moved():
    explorer = amortised(1)
    x = moved(explorer, 8, by=10.0)
    view = explorer.view(x, dataclasses.replace(explorer.choices, trimmed=0.125))
    assert (~view.kept).sum() == 5
    assert set(np.flatnonzero(~view.kept)) == {0, 1, 2, 3, 8}
    nle = with_density(nsm.NLE(skewed_prior(1)), 1)
    for name, rows in ((NLE, np.ones(len(x), bool)), (TRIMMED, view.kept)):
        exact, answer = nle.build_posterior(x[rows]), view.answers[name]
        assert np.abs((answer.mean - exact.mean) / exact.std).max() < 0.3
        assert np.abs(answer.std / exact.std - 1).max() < 0.25
    assert TRIMMED not in explorer.view(x, explorer.choices).answers


def test_outliers_move_nle_and_not_the_robust_posterior():
    explorer = amortised(1)
    before = explorer.view(explorer.x, explorer.choices)
    after = explorer.view(moved(explorer, 0, 1, 2, by=60.0), explorer.choices)
    steps = {
        name: np.abs(after.answers[name].mean - answer.mean).max() / answer.std.max()
        for name, answer in before.answers.items()
    }
    assert steps["NSM-Bayes-amortised"] < 0.05
    assert steps[NLE] > 0.5
    assert after.weights[:3].max() < 1e-2


def test_weights_are_those_of_the_posterior_and_of_the_chosen_zeta(random_method):
    explorer = conjugate(random_method, 1)
    np.testing.assert_allclose(explorer.view(explorer.x, explorer.choices).weights, explorer.posterior.weights)
    x, slow = moved(explorer, 0, by=5.0), dataclasses.replace(explorer.choices, zeta=3.0)
    weight, centre = explorer.posterior.weighting
    expected = Weighting(dataclasses.replace(weight, zeta=3.0), centre).at(x)
    np.testing.assert_allclose(explorer.view(x, slow).weights, expected, rtol=1e-12)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("weight", [IMQ(zeta=2.0), PlateauIMQ(radius=1.5, cutoff_radius=4.0), PlateauIMQ()], ids=repr)
def test_a_weight_whose_zeta_is_traced_is_the_weight(weight):
    live = Choices(beta=1.0, zeta=0.9, shift=(), width=(), trimmed=0.0).live_weight(weight)
    same = dataclasses.replace(weight, zeta=0.9)
    assert live.decay == same.decay
    for r in (0.0, 1.4, 3.0, 50.0, 1e200, np.inf):
        at = jnp.asarray(r)
        np.testing.assert_allclose(live.squared(at), same.squared(at), rtol=1e-12)
        np.testing.assert_allclose(live.overall(at), same.overall(at), rtol=1e-12)


def test_at_rest_everything_is_fitted_again(random_method):
    explorer = conjugate(random_method, 2)
    x = moved(explorer, 0, 1, 2, 3, by=1.0)
    choices = dataclasses.replace(explorer.choices, zeta=1.5, beta=0.2, shift=(1.0, 0.0), trimmed=0.1)
    again = explorer.rebuilt(x, choices)
    prior = choices.prior(explorer.method.prior)
    built = explorer.method.build_posterior(
        x, beta=0.2, prior=prior, weight=dataclasses.replace(explorer.method.weight, zeta=1.5)
    )
    np.testing.assert_array_equal(again.posterior.mean, built.mean)
    np.testing.assert_array_equal(again.x, x)
    assert again.choices == choices
    assert not np.array_equal(again.posterior.location_scatter[0], explorer.posterior.location_scatter[0])
    np.testing.assert_allclose(own(again.view(x, choices)).mean, built.mean, rtol=1e-9)


def test_what_a_model_has_not_is_not_offered(random_method):
    bare = conjugate(random_method, 1, weight=Constant())
    assert bare.comparisons == ()
    assert bare.choices.zeta is None
    assert list(bare.view(bare.x, bare.choices).answers) == ["NSM-Bayes-conj"]
    assert amortised(1).comparisons == (NLE, TRIMMED)
    assert amortised(1).own_prior is not None


@pytest.mark.slow
def test_other_priors_than_gaussian_ones_are_explored_as_they_are():
    prior = dist.Uniform(jnp.array([-5.0, -1.5]), jnp.array([5.0, 1.5])).to_event(1)
    method = with_density(nsm.NSMBayesAmortised(prior, calibration=None, excess=None), 1)
    explorer = explorer_of(method, skewed_data(1, 40, outliers=4))
    assert explorer.own_prior is None
    view = explorer.view(moved(explorer, 5), explorer.choices)
    assert all(answer is not None for answer in view.answers.values())
    assert view.prior.density(0, np.linspace(-10, 10, 50)).max() > 0


def test_nsm_bayes_is_explored_by_sums():
    method = with_density(nsm.NSMBayes(skewed_prior(1), calibration=None, excess=None, weight=IMQ(zeta=0.8)), 1)
    explorer = explorer_of(method, skewed_data(1, 40))
    assert explorer.posterior.label == "NSM-Bayes-amortised"
    assert explorer.choices.zeta == 0.8


def test_what_cannot_be_explored_is_refused(random_method):
    with pytest.raises(InputError, match="holds NLE, which has no posterior that moves at once"):
        explorer_of(with_density(nsm.NLE(skewed_prior(1)), 1), skewed_data(1, 40))
    with pytest.raises(InputError, match=r"`data` has 5,001 rows, and the page takes up to 5,000.*one row in 2"):
        explorer_of(random_method(1, 2), np.zeros((MOST + 1, 1)))
    with pytest.raises(InputError, match="`beta` must be"):
        explorer_of(random_method(1, 2), np.zeros((10, 1)), beta=-1.0)


@double_precision
def test_draws_of_nle_that_carry_weights_say_what_new_ones_say():
    """One row after another is moved a little; then one so far that new draws are needed."""
    explorer = amortised(1)
    density, prior = explorer.posterior.density, explorer.posterior.target.prior
    following, counts = LikelihoodAnswer(density, 0), np.ones(len(explorer.x))
    at_rest = following.of(prior, explorer.x, counts)
    for rows, by, reused in (((0,), 0.1, True), ((0, 1), 0.2, True), ((0, 1), 15.0, False)):
        x = moved(explorer, *rows, by=by)
        before = following._kept.theta
        carried = following.of(prior, x, counts)
        assert (following._kept.theta is before) == reused
        _, losses = losses_at(following._kept.positions, prior, NLELoss(density, jnp.asarray(x)))
        np.testing.assert_allclose(following._kept.losses, losses, rtol=1e-9)
        fresh = LikelihoodAnswer(density, 1).of(prior, x, counts)
        noise = fresh.std * 4 / np.sqrt(min(carried.effective, fresh.effective))  # false alarms: 1e-4 for each number
        assert (np.abs(carried.mean - fresh.mean) < 2 * noise).all()
        assert (np.abs(np.log(carried.std / fresh.std)) < 0.3).all()
    assert (np.abs(carried.mean - at_rest.mean) > at_rest.std).any()
