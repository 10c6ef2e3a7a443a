"""Priors of every make: densities against scipy's, the way to R^d, on disk, in methods and in certificates."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.priors import (
    as_gaussian,
    as_prior,
    constrain_rows,
    draw_prior,
    prior_from_json,
    prior_to_json,
    unconstrain_rows,
    unconstrained,
)
from nsmbayes.robustness.bounds.prior_tails import tails

SCIPY = {
    "norm": stats.norm(1, 2),
    "uniform": stats.uniform(-1, 5),
    "cauchy": stats.cauchy(0, 2),
    "laplace": stats.laplace(loc=1, scale=2),
    "logistic": stats.logistic(1, 2),
    "gumbel": stats.gumbel_r(1, 2),
    "t": stats.t(3, 1, scale=2),
    "truncated": stats.truncnorm(-1, 2, 0.5, 2),
    "truncated on one side": stats.truncnorm(-1, np.inf, 0.5, 2),
    "expon": stats.expon(scale=3),
    "gamma": stats.gamma(2, scale=3),
    "halfcauchy": stats.halfcauchy(scale=2),
    "halfnorm": stats.halfnorm(scale=2),
    "invgamma": stats.invgamma(3, scale=2),
    "lognorm": stats.lognorm(0.5, scale=3),
    "weibull": stats.weibull_min(2, scale=3),
    "beta": stats.beta(2, 3),
    "beta on an interval": stats.beta(2, 3, loc=-1, scale=4),
}
FEW = {name: SCIPY[name] for name in ("norm", "uniform", "truncated on one side", "gamma", "beta on an interval")}


@pytest.fixture(scope="module")
def mixed():
    return nsm.IndependentPrior(a=dist.Normal(0, 1), rate=dist.Uniform(0, 5))


@pytest.mark.parametrize("name", list(SCIPY))
def test_a_distribution_of_scipy_keeps_its_density(name):
    theirs = SCIPY[name]
    ours = nsm.IndependentPrior({name: theirs})
    x = np.concatenate([theirs.ppf(np.linspace(0.01, 0.99, 9)), [-1e3]])
    np.testing.assert_allclose(ours.log_prob(x[:, None]), theirs.logpdf(x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.marginal(0, x), theirs.pdf(x), rtol=1e-10, atol=1e-12)


def test_draws_are_those_of_each_part():
    prior = nsm.IndependentPrior(SCIPY)
    draws = prior.sample((4000,), seed=3)
    assert draws.shape == (4000, len(SCIPY))
    np.testing.assert_array_equal(draws, prior.sample(4000, seed=3))
    for j, theirs in enumerate(SCIPY.values()):
        assert stats.kstest(draws[:, j], theirs.cdf).pvalue > 1e-4, prior.parameter_names[j]
    assert np.abs(np.corrcoef(stats.rankdata(draws, axis=0).T) - np.eye(len(SCIPY))).max() < 5 / np.sqrt(4000)


def test_moments(mixed):
    np.testing.assert_allclose(mixed.mean, [0, 2.5])
    np.testing.assert_allclose(mixed.std, [1, 5 / np.sqrt(12)])


def test_the_way_to_the_unconstrained_space(x64):
    """Back and forth, and the density with the Jacobian of the bijectors, by automatic differentiation."""
    prior = nsm.IndependentPrior(FEW)
    support, theta = unconstrained(prior), prior.sample(2, seed=0)
    u = unconstrain_rows(support, theta)
    np.testing.assert_allclose(constrain_rows(support, u), theta, rtol=1e-9)
    for row, t in zip(u, theta, strict=True):
        jacobian = np.linalg.slogdet(jax.jacfwd(support.constrain)(jnp.asarray(row)))[1]
        units = np.log(np.asarray(support.units)).sum()
        assert float(support.log_prob(jnp.asarray(row))) == pytest.approx(
            prior.log_prob(t) + jacobian - units, rel=1e-9
        )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (stats.norm([0.0, 1.0], 2.0), nsm.GaussianPrior([0.0, 1.0], [4.0, 4.0])),
        (stats.multivariate_normal([1.0, 2.0], [[2.0, 0.5], [0.5, 1.0]]), None),
        ([stats.norm(0, 1), stats.norm(2, 3)], nsm.GaussianPrior([0.0, 2.0], [1.0, 9.0])),
    ],
)
def test_normal_ones_are_gaussian(given, expected):
    found = nsm.NSMBayesConj(given).prior
    if expected is None:
        expected = nsm.GaussianPrior(given.mean, given.cov)
    np.testing.assert_allclose(found.mean, expected.mean)
    np.testing.assert_allclose(found.covariance, expected.covariance)


def test_names_reach_methods_campaigns_and_errors(mixed, tmp_path):
    assert nsm.NSMBayes(mixed).parameter_names == ("a", "rate")
    assert nsm.NLE(mixed, parameter_names=("b", "c")).parameter_names == ("b", "c")
    normal = nsm.IndependentPrior(a=stats.norm(0, 1), b=stats.norm(1, 2))
    assert nsm.NSMBayesConj(normal).parameter_names == ("a", "b")
    assert as_gaussian(normal).std.tolist() == [1.0, 2.0]
    campaign = nsm.simulate(lambda rng, theta: theta, mixed, 20, out=tmp_path / "c.zarr", progress=False)
    assert campaign.parameter_names == ("a", "rate")
    assert repr(campaign.prior) == repr(mixed)
    with pytest.raises(nsm.InputError, match="`prior` must be Gaussian"):
        nsm.NSMBayesConj(mixed)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: nsm.IndependentPrior(), "needs parameters"),
        (lambda: nsm.IndependentPrior(a=3.0), "`a` must be a distribution"),
        (lambda: nsm.IndependentPrior(a=dist.Normal(jnp.zeros(2), 1.0)), "`a` must be one number"),
        (lambda: nsm.IndependentPrior(a=stats.norm([0, 1], 1)), "`a` must be one number"),
        (lambda: nsm.IndependentPrior(a=dist.Poisson(3.0)), "`a` must be continuous"),
        (lambda: nsm.IndependentPrior(a=dist.Uniform(1.0, 0.0, validate_args=False)), "low < high"),
        (lambda: nsm.IndependentPrior(a=dist.Normal(0.0, -1.0, validate_args=False)), "does not take scale=-1.0"),
        (lambda: nsm.IndependentPrior(a=stats.argus(1.0)), "scipy's argus"),
        (lambda: nsm.IndependentPrior(a=stats.expon(loc=1)), "only loc=0"),
        (lambda: nsm.IndependentPrior({"a": stats.norm()}, a=stats.norm()), "given twice"),
        (lambda: nsm.IndependentPrior(a=stats.norm()).log_prob([1.0, 2.0]), "`theta` must have shape"),
        (lambda: as_prior(stats.norm(np.zeros((2, 2)), 1)), "over one vector"),
        (lambda: as_prior([stats.norm(), "normal"]), r"`prior\[1\]`"),
        (lambda: as_prior("normal"), "`prior` must be an nsmbayes.GaussianPrior"),
    ],
)
def test_what_is_no_prior_is_refused(make, reason):
    with pytest.raises(nsm.InputError, match=reason):
        make()


def test_json_and_back():
    known = {name: part for name, part in SCIPY.items() if name != "beta on an interval"}
    prior = nsm.IndependentPrior(known)
    again, names = prior_from_json(json.loads(json.dumps(prior_to_json(prior))))
    assert names == tuple(known)
    x = np.full((2, len(known)), 0.7)
    np.testing.assert_array_equal(again.log_prob(x), prior.log_prob(x))
    assert prior_to_json(nsm.IndependentPrior(a=SCIPY["beta on an interval"])) is None
    assert prior_to_json(dist.Normal(0.0, 1.0).expand([2]).to_event(1))["loc"] == [0.0, 0.0]
    for wrong in ({"a": 1}, {"a": {"distribution": "Normal", "loc": 0}}, {"a": {"distribution": "Dirichlet"}}, []):
        with pytest.raises(nsm.InputError):
            prior_from_json({"distribution": "Independent", "parameters": wrong})


def test_tails_are_those_of_the_worst_part(mixed):
    assert tails(mixed.distribution).light
    laplace = nsm.IndependentPrior(a=dist.Laplace(0.0, 2.0), b=dist.Normal(0.0, 1.0))
    assert tails(laplace.distribution).rate == pytest.approx(0.5)
    heavy = tails(nsm.IndependentPrior(a=dist.Normal(0.0, 1.0), b=dist.Cauchy(0.0, 1.0)).distribution)
    assert not heavy.light
    assert "Cauchy" in heavy.why


OWN = dist.TransformedDistribution(dist.Normal(jnp.zeros(2), 1.0), dist.transforms.ExpTransform()).to_event(1)


INDEPENDENT = nsm.IndependentPrior(a=dist.Normal(0, 1), rate=dist.Uniform(0.5, 5))


@pytest.mark.parametrize(
    ("kind", "prior"),
    [
        (nsm.NLE, INDEPENDENT),
        (nsm.NSMBayes, INDEPENDENT),
        (nsm.NSMBayesAmortised, stats.uniform([0.0, 0.5], 2.0)),
        (nsm.NLE, dist.Uniform(jnp.zeros(2) + 0.5, 2.0).to_event(1)),
        (nsm.NSMBayes, OWN),
    ],
    ids=["independent", "independent-robust", "scipy", "numpyro", "own"],
)
def test_every_method_saves_with_every_prior(kind, prior, tmp_path):
    theta = draw_prior(unconstrained(prior), 200)
    x = theta[:, :1] + theta[:, 1:] * np.random.default_rng(0).standard_normal((200, 1))
    method = kind(prior, surrogate=nsm.MDN(components=2, hidden=(4,))).append_simulations(theta, x)
    method.train(settings=nsm.TrainingSettings(max_epochs=1), progress=False)
    path = method.save(tmp_path / "model")
    if prior is OWN:
        with pytest.raises(nsm.InputError, match="has no form on disk"):
            nsm.load(path)
    loaded = nsm.load(path, prior=prior if prior is OWN else None)
    assert loaded.parameter_names == method.parameter_names
    with jax.enable_x64(True):
        u = jnp.array([0.3, -0.2])
        assert float(loaded.support.log_prob(u)) == float(method.support.log_prob(u))
        np.testing.assert_array_equal(loaded.support.constrain(u), method.support.constrain(u))


@pytest.mark.filterwarnings("ignore:The chains of the:UserWarning")
def test_a_posterior_with_such_a_prior_is_certified_saved_and_loaded(mixed, tmp_path):
    theta = mixed.sample(2000, seed=0)
    x = theta[:, :1] + np.random.default_rng(0).standard_normal((2000, 1))
    options = {"surrogate": nsm.MDN(components=2, hidden=(8,)), "chains": 2, "draws": 100}
    method = nsm.NSMBayes(mixed, **options).append_simulations(theta, x)
    method.train(settings=nsm.TrainingSettings(max_epochs=5), progress=False)
    posterior = method.build_posterior(x[:30], beta=1.0, seed=0)
    assert ((posterior.draws[..., 1] > 0) & (posterior.draws[..., 1] < 5)).all()
    assert posterior.certificate.robust
    loaded = nsm.load(posterior.save(tmp_path / "posterior"))
    np.testing.assert_array_equal(loaded.draws, posterior.draws)
    np.testing.assert_allclose(loaded.prior.std, posterior.prior.std)
    assert loaded.summary().splitlines()[:4] == posterior.summary().splitlines()[:4]
