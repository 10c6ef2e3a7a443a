"""Planted violations of the theorems' assumptions: none of them is certified, and each is named."""

import dataclasses
import functools
import json
from typing import ClassVar

import equinox as eqx
import flowjax.bijections as bijections
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from support import builders
from support.builders import general, maf, mdn, noisy_flow, prior_of, third_power
from support.reference import random_family

from nsmbayes.losses import DEFAULT_NOISE_LEVELS, NSMLoss, NSMSetting
from nsmbayes.posteriors import GeneralisedPosterior
from nsmbayes.robustness import Certificate
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import ExponentialFamily, MixtureDensityNetwork, NoisyFamily, TanhNetwork
from nsmbayes.surrogates.sbi import Affine, SbiMixture
from nsmbayes.weights import IMQ, Constant, PlateauIMQ, Weighting

DEFAULT = PlateauIMQ(radius=2.0, zeta=1.0)
conjugate = functools.partial(builders.conjugate, 1, weight=IMQ(zeta=2.0))


class MyWeight(IMQ):
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
    """A family with noise levels whose derivatives are those of something else."""


class MyLoss(NSMLoss):
    """A loss of the user's, which may do anything."""


class MySetting(NSMSetting):
    """A setting of the user's, whose weighting may not be what its loss was weighted by."""


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


def changed(posterior, *, setting=None, loss=None):
    """The posterior with other parts than it was sampled with."""
    target = posterior.target if loss is None else posterior.target._replace(loss=loss)
    setting = posterior.setting if setting is None else setting
    return GeneralisedPosterior(posterior.provenance, target, posterior.result, posterior.x, setting)


def rebuilt(posterior, estimator):
    """The posterior as it would be if MCD had failed and another estimator had replaced it."""
    centre = fit_location_scatter(posterior.x, estimator=estimator)
    weighting = Weighting(posterior.setting.weighting.weight, centre)
    return changed(posterior, setting=posterior.setting._replace(weighting=weighting))


def singular(posterior):
    weight, centre = posterior.setting.weighting
    flat = dataclasses.replace(centre, scatter=0 * centre.scatter)
    return changed(posterior, setting=posterior.setting._replace(weighting=Weighting(weight, flat)))


def with_loss(posterior):
    loss = posterior.target.loss
    return changed(posterior, loss=MyLoss(**{f.name: getattr(loss, f.name) for f in dataclasses.fields(loss)}))


def with_setting(posterior):
    return changed(posterior, setting=MySetting(*posterior.setting))


# what was planted, how to build it, and the assumption that must be seen to fail
VIOLATIONS = {
    "MAF with zeta = 2": (lambda: general(maf(2), IMQ(zeta=2.0)), "A4"),
    "MAF of two transforms with zeta = 1": (lambda: general(maf(3, transforms=2)), "A4"),
    "MAF that grows with the third power, zeta = 1": (lambda: general(third_power()[0]), "A4"),
    "MAF of five transforms with zeta just above 1/3": (
        lambda: general(maf(2, transforms=5), IMQ(zeta=0.3334)),
        "A4",
    ),
    "MAF that was not trained with noise, with noise levels": (
        lambda: general(maf(2), IMQ(zeta=0.5), noise_levels=(0.5, 1.0)),
        "A4",
    ),
    "noisy flow of two transforms with zeta just above 2/3": (
        lambda: general(noisy_flow(2), IMQ(zeta=0.667), noise_levels=(0.5, 1.0)),
        "A4",
    ),
    "noisy flow with a base of the user's": (
        lambda: general(with_base(MyNetwork), IMQ(zeta=0.5), noise_levels=(0.5, 1.0)),
        "A2",
    ),
    "MAF with a plateau weight, zeta = 2": (lambda: general(maf(2), PlateauIMQ(zeta=2.0)), "A4"),
    "constant weight with MDN": (lambda: general(mdn(1), Constant()), "A4"),
    "constant weight with MAF": (lambda: general(maf(2), Constant()), "A4"),
    "constant weight with noise levels": (lambda: general(mdn(1), Constant(), noise_levels=DEFAULT_NOISE_LEVELS), "A4"),
    "zeta out of range with MDN": (lambda: general(mdn(1), IMQ(zeta=2.001)), "A4"),
    "zeta far out of range with MDN": (lambda: general(mdn(3), IMQ(zeta=10.0)), "A4"),
    "zeta out of range with noise levels": (
        lambda: general(mdn(1), PlateauIMQ(zeta=2.5), noise_levels=DEFAULT_NOISE_LEVELS),
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
        lambda: general(mdn(3), DEFAULT, estimator="sample", noise_levels=(0.5, 1.0)),
        "scatter",
    ),
    "MCD fallback to the sample covariance": (lambda: rebuilt(general(mdn(1)), "sample"), "scatter"),
    "singular scatter": (lambda: singular(general(mdn(1))), "scatter"),
    "a loss of the user's": (lambda: with_loss(general(mdn(1))), "A4"),
    "a setting of the user's": (lambda: with_setting(general(mdn(1))), "A4"),
    "NLE": (lambda: general(mdn(1), nle=True), "A4"),
    "conj: non-robust scatter": (lambda: conjugate(scatter="sample"), "scatter"),
    "conj: a weight of the user's": (lambda: conjugate(weight=MyWeight(zeta=1.0)), "A1"),
    "conj: a family of the user's": (
        lambda: conjugate(MyFamily(**{f.name: getattr(mine(), f.name) for f in FIELDS})),
        "A3",
    ),
    "conj: a family of the user's, with noise levels": (
        lambda: conjugate(MyNoisyFamily(**{f.name: getattr(noisy(), f.name) for f in FIELDS}), noise_levels=(0.5, 1.0)),
        "A3",
    ),
    "conj: ReLU, with noise levels": (
        lambda: conjugate(
            dataclasses.replace(noisy(), b=Rectified(*jax.tree.leaves(noisy().b))), noise_levels=(0.5, 1.0)
        ),
        "A3",
    ),
    "conj: non-robust scatter, with noise levels": (
        lambda: conjugate(scatter="sample", noise_levels=(0.5, 1.0)),
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
    written = certificate.as_json()
    read = Certificate.from_json(json.loads(json.dumps(written, allow_nan=False)))
    assert read.as_json() == written
    assert read.explain() == certificate.explain()
