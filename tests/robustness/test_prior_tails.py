"""Tails of priors: those called light fall as fast as claimed, and those called heavy are heavy."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from nsmbayes.robustness.bounds.prior_tails import tails

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
