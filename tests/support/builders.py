"""Posteriors put together by hand, for certificates: nothing is trained, and draws are where the test wants them."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes.losses import NLESetting, NSMSetting
from nsmbayes.methods import NSMBayesConj
from nsmbayes.posteriors import GeneralisedPosterior, Provenance
from nsmbayes.priors import GaussianPrior, unconstrained
from nsmbayes.robustness import certify
from nsmbayes.samplers import Draws, Target
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.surrogates import (
    MaskedAutoregressiveFlow,
    Standardiser,
    init_masked_autoregressive_flow,
    init_mixture_density_network,
    init_noisy_flow,
)
from nsmbayes.surrogates.sbi import Affine, Chain, MaskedAffine, Reorder
from nsmbayes.weights import IMQ, Weighting
from support.reference import random_family

GAUSSIAN = GaussianPrior(np.zeros(2), np.eye(2))


def data(d_x, n=40, seed=0):
    """Correlated observations with a tenth of outliers."""
    rng = np.random.default_rng(seed)
    x = 5 + rng.standard_normal((n, d_x)) @ (np.eye(d_x) + 0.5 * rng.standard_normal((d_x, d_x)))
    x[: n // 10] += 40
    return x


def standardiser(d, seed):
    rng = np.random.default_rng(seed)
    return Standardiser(jnp.asarray(rng.standard_normal(d)), jnp.asarray(rng.uniform(0.5, 2, d)), asinh=False)


def in_double(model):
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, model)


def shaken(model, size, seed=0):
    """The model with noise on its weights, so that it is far from its simple initial state."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda a: a + size * rng.standard_normal(a.shape) if eqx.is_inexact_array(a) else a,
        model,
        is_leaf=lambda node: isinstance(node, Standardiser),
    )


@functools.cache
def mdn(d_x, d_theta=2, *, seed=0, **options):
    with jax.enable_x64(True):
        options = {"components": 3, "hidden": (8, 8), "floor": 0.3, "ceiling": 5.0} | options
        scales = standardiser(d_x, seed), standardiser(d_theta, seed + 1)
        return shaken(in_double(init_mixture_density_network(jax.random.key(seed), *scales, **options)), 0.5, seed)


@functools.cache
def maf(d_x, d_theta=2, *, transforms=1, seed=0, size=0.2, **options):
    with jax.enable_x64(True):
        scales = standardiser(d_x, seed), standardiser(d_theta, seed + 1)
        options = {"transforms": transforms, "hidden": 6, "depth": 1, "allow_one_dimension": True} | options
        return shaken(in_double(init_masked_autoregressive_flow(jax.random.key(seed), *scales, **options)), size, seed)


@functools.cache
def noisy_flow(d_x, d_theta=2, *, seed=0, size=0.2, **options):
    """A flow that knows the noise, of two transforms."""
    with jax.enable_x64(True):
        scales = standardiser(d_x, seed), standardiser(d_theta, seed + 1)
        defaults = {
            "hidden": 6,
            "base_hidden": (6,),
            "floor": 0.3,
            "ceiling": 5.0,
            "levels": (0.1, 6.4),
            "transforms": 2,
        }
        flow = init_noisy_flow(jax.random.key(seed), *scales, **defaults | options)
        return shaken(in_double(flow), size, seed)


def flow_of(*parts):
    """A flow in three dimensions, of transforms as sbi has them, in standardised coordinates."""
    scales = [Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False) for d in (3, 2)]
    return MaskedAutoregressiveFlow(Chain(parts), *scales, None, squash=False, activation="tanh", floor=0.0)


@functools.cache
def third_power():
    """A flow of two transforms whose score grows with the third power of x along a direction, and that direction.

    A transform scales the third coordinate by sigma(tanh(z_1 + z_2)) and the others by log 2. Along (R, -R, R) the sum
    is 0, where sigma changes: du_3/dz_1 is of size R. In reversed order the second transform scales u_1, of size R, by
    sigma(tanh(u_3 + u_2)), and the sum is 0 again: its derivative in z_1 is of size R^2. The score has that times u_1.
    """
    with jax.enable_x64(True):
        raw_of_third = jnp.zeros((6, 1)).at[4].set(1.0)
        transform = MaskedAffine(
            first=Affine(jnp.array([[1.0, 1.0, 0.0]]), jnp.zeros(1)),
            context=Affine(jnp.zeros((1, 2)), jnp.zeros(1)),
            blocks=(),
            last=Affine(raw_of_third, jnp.zeros(6)),
            epsilon=0.0,
        )
        return flow_of(transform, Reorder(jnp.array([2, 1, 0])), transform), jnp.array([1.0, -1.0, 1.0])


def general(
    surrogate,
    weight=None,
    *,
    noise_levels=(0.0,),
    estimator="mcd",
    prior=GAUSSIAN,
    x=None,
    whiten=True,
    beta=1.0,
    nle=False,
    positions=None,
):
    """A generalised posterior with standard normal draws, or `positions`, in place of its own."""
    d_x = len(surrogate.scale_x.scale)
    x = data(d_x) if x is None else x
    weighting = Weighting(IMQ(zeta=1.0) if weight is None else weight, fit_location_scatter(x, estimator=estimator))
    setting = NSMSetting.of(surrogate, weighting, noise_levels, whiten=whiten)
    if nle:
        setting = NLESetting(surrogate, weighting)
    support = unconstrained(prior)
    if positions is None:
        positions = np.random.default_rng(0).standard_normal((2, 30, support.dim))
    chains, _, dim = positions.shape
    one = np.ones(dim)
    result = Draws(positions, np.ones(chains), np.zeros(chains, int), one, ess_bulk=1000 * one, ess_tail=1000 * one)
    names = tuple(f"theta_{i}" for i in range(dim))
    with jax.enable_x64(True):
        target = Target(support, setting.loss(x), jnp.asarray(beta))
    return GeneralisedPosterior(Provenance("nsm-bayes", "NSM-Bayes", names, certify), target, result, x, setting)


def conjugate(d_x, family=None, *, prior=GAUSSIAN, noise_levels=(0.0,), beta=0.3, **options):
    """A conjugate posterior of random networks, or of `family`."""
    method = NSMBayesConj(prior, noise_levels=noise_levels, **options)
    method.adopt(random_family(d_x, 2, noisy=noise_levels != (0.0,)) if family is None else family)
    return method.build_posterior(data(d_x), beta=beta)


def prior_of(distribution):
    """Two independent parameters of one distribution."""
    return distribution.expand([2]).to_event(1)
