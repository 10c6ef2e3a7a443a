"""Certificates: no false "robust" on planted violations, true ones where the theory says so, and bounds that hold."""

import dataclasses
import json
from typing import ClassVar

import equinox as eqx
import flowjax.bijections as bijections
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from builders import GAUSSIAN, data, general, maf, mdn, noisy_flow, third_power
from helpers import random_family

import nsmbayes as nsm
from nsmbayes.interop.sbi import Affine, SbiMixture
from nsmbayes.levels import DEFAULT_LEVELS
from nsmbayes.robustness import Certificate, certify
from nsmbayes.robustness.influence import losses_at
from nsmbayes.robustness.prior_tails import tails
from nsmbayes.surrogates import ExponentialFamily, MixtureDensityNetwork, NoisyFamily, TanhNetwork
from nsmbayes.weights import LocationScatter, fit_location_scatter

DEFAULT = nsm.PlateauIMQ(radius=2.0, zeta=1.0)


class MyWeight(nsm.IMQ):
    """A weight of the user's, which may do anything."""

    def squared(self, r):
        return 1 + 0 * r, 0 * r


class MyNetwork(MixtureDensityNetwork):
    """A mixture whose means are not bounded in theta."""

    def mixture(self, t):
        mixture = super().mixture(t)
        return mixture._replace(means=mixture.means + jnp.exp(t).sum())


class MyFamily(ExponentialFamily):
    """A family whose derivatives are those of something else."""


class MyNoisyFamily(NoisyFamily):
    """The same, with noise levels."""


class Rectified(TanhNetwork):
    """Not a tanh network."""

    kinked: ClassVar[bool] = True


def noisy():
    return random_family(1, 2, noisy=True)


def mine():
    return random_family(1, 2)


def sbi_mixture():
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        affine = [Affine(jnp.asarray(rng.standard_normal((k, 4))), jnp.zeros(k)) for k in (2, 4, 4, 2)]
        hidden = (Affine(jnp.asarray(rng.standard_normal((4, 2))), jnp.zeros(4)),)
        scales = mdn(2).scale_x, mdn(2).scale_theta
        return SbiMixture(hidden, *affine, *scales, epsilon=0.01)


def with_weight(surrogate, place, value):
    with jax.enable_x64(True):
        return eqx.tree_at(place, surrogate, replace_fn=lambda a: a.at[(0,) * a.ndim].set(value))


def other_transformer(transformer):
    """A flow whose transforms are not affine, though its label and its activation say nothing of it."""
    flow = maf(2)
    layer = bijections.MaskedAutoregressive(
        jax.random.key(0), transformer=transformer, dim=2, cond_dim=2, nn_width=6, nn_depth=1, nn_activation=jnp.tanh
    )
    return eqx.tree_at(lambda f: f.transform, flow, bijections.Chain([layer, bijections.Flip((2,))]))


def other_activation(activation):
    def place(flow):
        return flow.transform.bijections[0].masked_autoregressive_mlp.activation

    return eqx.tree_at(place, maf(2), activation)


def with_base(kind):
    flow = noisy_flow(2)
    base = kind(**{field.name: getattr(flow.base, field.name) for field in dataclasses.fields(flow.base)})
    return dataclasses.replace(flow, base=base)


def conjugate(family=None, *, levels=(0.0,), **options):
    options = {"weight": nsm.IMQ(zeta=2.0)} | options
    method = nsm.NSMBayesConj(GAUSSIAN, levels=levels, **options)
    method.family = random_family(1, 2, noisy=levels != (0.0,)) if family is None else family
    return method.build_posterior(data(1), beta=0.3)


def rebuilt(posterior, estimator):
    """The posterior as it would be had MCD failed and another estimator stood in for it."""
    weight, _ = posterior._trust
    posterior._trust = weight, fit_location_scatter(posterior.x, estimator=estimator)
    return posterior


def singular(posterior):
    weight, centre = posterior._trust
    flat = LocationScatter(centre.location, 0 * centre.scatter, centre.factor, "mcd")
    posterior._trust = weight, flat
    return posterior


def prior_of(distribution):
    return distribution.expand([2]).to_event(1)


# what was planted, how to build it, and the assumption that must be seen to fail
VIOLATIONS = {
    "MAF with zeta = 2": (lambda: general(maf(2), nsm.IMQ(zeta=2.0)), "A4"),
    "MAF of two transforms with zeta = 1": (lambda: general(maf(3, transforms=2)), "A4"),
    "MAF that grows with the third power, zeta = 1": (lambda: general(third_power()[0]), "A4"),
    "MAF of five transforms with zeta just above 1/3": (
        lambda: general(maf(2, transforms=5), nsm.IMQ(zeta=0.3334)),
        "A4",
    ),
    "MAF that was not trained with noise, with noise levels": (
        lambda: general(maf(2), nsm.IMQ(zeta=0.5), levels=(0.5, 1.0)),
        "A4",
    ),
    "noisy flow of two transforms with zeta just above 2/3": (
        lambda: general(noisy_flow(2), nsm.IMQ(zeta=0.667), levels=(0.5, 1.0)),
        "A4",
    ),
    "noisy flow with a base of the user's": (
        lambda: general(with_base(MyNetwork), nsm.IMQ(zeta=0.5), levels=(0.5, 1.0)),
        "A2",
    ),
    "MAF with a plateau weight, zeta = 2": (lambda: general(maf(2), nsm.PlateauIMQ(zeta=2.0)), "A4"),
    "constant weight with MDN": (lambda: general(mdn(1), nsm.Constant()), "A4"),
    "constant weight with MAF": (lambda: general(maf(2), nsm.Constant()), "A4"),
    "constant weight with noise levels": (lambda: general(mdn(1), nsm.Constant(), levels=DEFAULT_LEVELS), "A4"),
    "zeta out of range with MDN": (lambda: general(mdn(1), nsm.IMQ(zeta=2.001)), "A4"),
    "zeta far out of range with MDN": (lambda: general(mdn(3), nsm.IMQ(zeta=10.0)), "A4"),
    "zeta out of range with noise levels": (
        lambda: general(mdn(1), nsm.PlateauIMQ(zeta=2.5), levels=DEFAULT_LEVELS),
        "A4",
    ),
    "a weight of the user's": (lambda: general(mdn(1), MyWeight(zeta=1.0)), "A1"),
    "a network of the user's, unbounded in theta": (
        lambda: general(MyNetwork(**{f.name: getattr(mdn(1), f.name) for f in dataclasses.fields(mdn(1))})),
        "A2",
    ),
    "precisions unbounded in theta": (lambda: general(sbi_mixture()), "A4"),
    "softplus network": (lambda: general(maf(2, activation="softplus")), "A4"),
    "gelu network": (lambda: general(maf(2, activation="gelu")), "A4"),
    "ReLU behind the label of tanh": (lambda: general(other_activation(jax.nn.relu)), "A2"),
    "identity behind the label of tanh": (lambda: general(other_activation(lambda h: h)), "A2"),
    "spline flow": (
        lambda: general(other_transformer(bijections.RationalQuadraticSpline(knots=4, interval=3.0))),
        "A2",
    ),
    "affine flow with another scale": (lambda: general(other_transformer(bijections.Affine())), "A2"),
    "NaN among the weights": (lambda: general(with_weight(mdn(1), lambda m: m.layers[0].weight, np.nan)), "A2"),
    "Cauchy prior": (lambda: general(mdn(1), prior=prior_of(dist.Cauchy(0.0, 1.0))), "prior"),
    "Student t prior": (lambda: general(mdn(1), DEFAULT, prior=prior_of(dist.StudentT(5.0, 0.0, 1.0))), "prior"),
    "half-Cauchy prior": (lambda: general(mdn(1), prior=prior_of(dist.HalfCauchy(1.0))), "prior"),
    "log-normal prior": (lambda: general(mdn(1), prior=prior_of(dist.LogNormal(0.0, 1.0))), "prior"),
    "Gamma prior with an unbounded density": (lambda: general(mdn(1), prior=prior_of(dist.Gamma(0.5, 1.0))), "prior"),
    "a prior that is not known": (
        lambda: general(mdn(1), prior=prior_of(dist.AsymmetricLaplace(0.0, 1.0, 2.0))),
        "prior",
    ),
    "non-robust scatter": (lambda: general(mdn(1), estimator="sample"), "scatter"),
    "non-robust scatter with noise levels": (
        lambda: general(mdn(3), DEFAULT, estimator="sample", levels=(0.5, 1.0)),
        "scatter",
    ),
    "MCD fallback to the sample covariance": (lambda: rebuilt(general(mdn(1)), "sample"), "scatter"),
    "singular scatter": (lambda: singular(general(mdn(1))), "scatter"),
    "NLE": (lambda: general(mdn(1), nle=True), "A4"),
    "conj: non-robust scatter": (lambda: conjugate(scatter="sample"), "scatter"),
    "conj: a weight of the user's": (lambda: conjugate(weight=MyWeight(zeta=1.0)), "A1"),
    "conj: a family of the user's": (
        lambda: conjugate(MyFamily(**{f.name: getattr(mine(), f.name) for f in FIELDS})),
        "A3",
    ),
    "conj: a family of the user's, with noise levels": (
        lambda: conjugate(MyNoisyFamily(**{f.name: getattr(noisy(), f.name) for f in FIELDS}), levels=(0.5, 1.0)),
        "A3",
    ),
    "conj: ReLU, with noise levels": (
        lambda: conjugate(dataclasses.replace(noisy(), b=Rectified(*jax.tree.leaves(noisy().b))), levels=(0.5, 1.0)),
        "A3",
    ),
    "conj: non-robust scatter, with noise levels": (
        lambda: conjugate(scatter="sample", levels=(0.5, 1.0)),
        "scatter",
    ),
    "conj: ReLU": (
        lambda: conjugate(dataclasses.replace(mine(), T=Rectified(*jax.tree.leaves(random_family(1, 2).T)))),
        "A3",
    ),
}
FIELDS = dataclasses.fields(ExponentialFamily)


@pytest.mark.parametrize("name", VIOLATIONS)
def test_no_violation_is_certified(name):
    assert len(VIOLATIONS) >= 20
    build, failing = VIOLATIONS[name]
    certificate = build().certificate
    assert not certificate.robust
    assert failing in certificate.failures
    assert certificate.influence_bound is None
    assert certificate.verdict.startswith("NOT certified robust")
    assert certificate.checks[failing].why[1:] in " ".join(certificate.explain().split())


ROBUST = {
    "MDN, IMQ, zeta = 2": (lambda: general(mdn(1), nsm.IMQ(zeta=2.0)), "A4'", False),
    "MDN, IMQ, zeta = 1": (lambda: general(mdn(3), nsm.IMQ(zeta=1.0)), "A4'", True),
    "MDN in the user's units": (lambda: general(mdn(3), nsm.IMQ(zeta=1.0), whiten=False), "A4'", True),
    "MDN, squared exponential": (lambda: general(mdn(1), nsm.SquaredExponential()), "A4", True),
    "default: levels and plateau": (lambda: general(mdn(1), DEFAULT, levels=DEFAULT_LEVELS), "A4", True),
    "levels in three dimensions": (lambda: general(mdn(3), DEFAULT, levels=(0.2, 0.4)), "A4", True),
    "MAF of one transform, zeta = 1": (lambda: general(maf(3), nsm.IMQ(zeta=1.0)), "A4'", False),
    "MAF of two transforms, zeta = 2/3": (lambda: general(maf(3, transforms=2), nsm.IMQ(zeta=2 / 3)), "A4'", False),
    "MAF in one dimension, zeta = 2": (lambda: general(maf(1, transforms=5), nsm.IMQ(zeta=2.0)), "A4'", False),
    "noisy flow of two transforms, zeta = 2/3": (
        lambda: general(noisy_flow(2), nsm.IMQ(zeta=2 / 3), levels=(0.5, 1.0)),
        "A4'",
        False,
    ),
    "third power, zeta = 1/2": (lambda: general(third_power()[0], nsm.IMQ(zeta=0.5)), "A4'", True),
    "MAD": (lambda: general(mdn(1), estimator="mad"), "A4'", True),
    "uniform prior": (lambda: general(mdn(1), prior=prior_of(dist.Uniform(-1.0, 1.0))), "A4'", True),
    "conj": (conjugate, "A5", True),
    "conj, any zeta": (lambda: conjugate(weight=nsm.IMQ(zeta=7.0)), "A5", True),
    "conj, noise levels": (lambda: conjugate(levels=(0.5, 1.0)), "A5", True),
    "conj, constant weight": (lambda: conjugate(weight=nsm.Constant()), "A5", False),
}


@pytest.mark.parametrize("name", ROBUST)
def test_what_is_proved_is_certified(name):
    build, assumption, vanishing = ROBUST[name]
    certificate = build().certificate
    assert certificate.robust, certificate.explain()
    assert certificate.assumption == assumption
    assert certificate.vanishing == vanishing
    assert 0 < certificate.influence_bound < np.inf
    assert all(np.isfinite(value) for value in certificate.constants.values())
    assert not certificate.failures
    json.dumps(certificate.as_json(), allow_nan=False)


def test_a_certificate_is_computed_once_and_shown():
    posterior = conjugate()
    assert posterior.certificate is posterior.certificate
    assert " ".join(posterior.certificate.verdict.split()) in " ".join(posterior.summary().split())
    assert posterior.with_beta(0.6).certificate.influence_bound > posterior.certificate.influence_bound
    words = posterior.certificate.explain()
    for name, value in posterior.certificate.constants.items():
        assert name in words
        assert f"{value:.6g}" in words


def test_nothing_is_assumed_of_what_is_not_known():
    class Thing:
        pass

    certificate = certify(Thing())
    assert isinstance(certificate, Certificate)
    assert not certificate.robust
    assert "no theorem is known for a Thing" in certificate.verdict


def test_more_outliers_than_half_are_warned_of():
    x = data(1, n=100)
    x[:45] += 1000
    assert "no location and scatter can tell" in " ".join(general(mdn(1), x=x).certificate.notes)
    assert "no location and scatter can tell" not in " ".join(general(mdn(1)).certificate.notes)


LIGHT = [
    dist.Normal(1.0, 3.0),
    dist.Laplace(0.0, 2.0),
    dist.Logistic(0.0, 0.5),
    dist.Gumbel(0.0, 1.5),
    dist.Exponential(0.7),
    dist.Gamma(3.0, 0.4),
    dist.Chi2(4.0),
    dist.HalfNormal(2.0),
    dist.Uniform(-3.0, 2.0),
    dist.Beta(1.0, 2.0),
    dist.TruncatedNormal(0.0, 1.0, low=-1.0),
    dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
    dist.TransformedDistribution(dist.Laplace(0.0, 1.0), dist.transforms.AffineTransform(1.0, -3.0)),
]
HEAVY = [
    dist.Cauchy(0.0, 1.0),
    dist.HalfCauchy(1.0),
    dist.StudentT(30.0, 0.0, 1.0),
    dist.LogNormal(0.0, 0.5),
    dist.Pareto(1.0, 3.0),
    dist.InverseGamma(2.0, 1.0),
    dist.TransformedDistribution(dist.Cauchy(0.0, 1.0), dist.transforms.AffineTransform(1.0, -3.0)),
]


@pytest.mark.parametrize("prior", LIGHT, ids=lambda d: type(d).__name__)
def test_light_tails_fall_as_fast_as_is_claimed_and_no_faster(x64, prior):
    found = tails(prior)
    assert found.light
    slowest = np.inf
    for side in (-1, 1):
        far = side * jnp.geomspace(50.0, 400.0, 200)
        if not prior.support(far).all():
            continue
        falls = -jnp.diff(prior.log_prob(far)) / jnp.diff(jnp.abs(far))  # of the log density, per unit of |theta|
        assert (falls >= min(0.9 * found.rate, 5.0)).all()
        slowest = min(slowest, float(falls[-1]))
    if np.isfinite(found.rate):
        assert found.rate <= 1.02 * slowest


@pytest.mark.parametrize("prior", HEAVY, ids=lambda d: type(d).__name__)
def test_heavy_tails_are_refused_and_are_heavy(x64, prior):
    assert not tails(prior).light
    far = jnp.array([1e4, 1e5])
    values = prior.log_prob(far if prior.support(far).all() else -far)
    assert -(values[1] - values[0]) / (far[1] - far[0]) < 1e-2  # no exponential of a noticeable rate


@pytest.mark.parametrize(
    "build",
    [
        lambda: general(mdn(1), DEFAULT, levels=(0.2, 0.8)),
        lambda: general(mdn(3), nsm.IMQ(zeta=2.0)),
        lambda: general(maf(3, transforms=2), nsm.IMQ(zeta=2 / 3)),
    ],
    ids=["levels", "mdn", "maf"],
)
def test_no_loss_leaves_the_certified_range(x64, build):
    """For any theta and any x: far out, near, and where a search has climbed to."""
    posterior = build()
    certificate = posterior.certificate
    rng = np.random.default_rng(0)
    d_x = posterior.x.shape[1]
    thetas = rng.standard_normal((24, 2)) * np.geomspace(0.3, 1e4, 24)[:, None]
    location, scatter = posterior.location_scatter
    scale = np.sqrt(np.diag(scatter))
    x = location + scale * rng.standard_normal((128, d_x)) * np.geomspace(0.1, 1e7, 128)[:, None]
    worst = -np.inf
    for _ in range(3):  # climb: keep the best, and look around them
        losses = losses_at(posterior, x, thetas)
        assert -certificate.constants["loss_low"] <= losses.min()
        assert losses.max() <= certificate.constants["loss_high"]
        assert losses.max() >= worst - 1e-9
        worst = losses.max()
        best = x[np.argsort(losses.max(axis=0))[-16:]]
        moved = np.repeat(best, 7, axis=0)
        moved = location + (moved - location) * np.exp(0.3 * rng.standard_normal(moved.shape))
        x = np.concatenate([best, moved])
    assert certificate.constants["loss_high"] > 0
