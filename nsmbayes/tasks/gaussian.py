"""Draws of N(mu, sigma^2), with theta = (mu, log sigma): the smallest task with an exact posterior."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks.base import Contamination, Task, all_at_once
from nsmbayes.tasks.contamination import huber_shift


def simulate_one(key: Key[Array, ""], theta: Float[Array, "2"]) -> Float[Array, "1"]:
    """One draw."""
    return (theta[0] + jnp.exp(theta[1]) * jax.random.normal(key))[None]


def log_prob(theta: Float[Array, "2"], x: Float[Array, "1"]) -> Float[Array, ""]:
    """The log density of one draw."""
    return jax.scipy.stats.norm.logpdf(x[0], theta[0], jnp.exp(theta[1]))


def shift(
    clean: Float[np.ndarray, "n 1"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 1"], Bool[np.ndarray, " n"]]:
    """One-sided outliers: draws of the true distribution plus ten of its standard deviations."""
    del keys
    return huber_shift(clean, fraction=fraction, shift=10 * np.exp(GAUSSIAN.theta_true[1]), rng=rng)


GAUSSIAN = Task(
    name="gaussian",
    prior=GaussianPrior(mean=[0.0, 0.0], covariance=[3.0**2, 1.0]),
    theta_true=np.array([1.0, 0.5]),
    parameter_names=("mu", "log sigma"),
    x_names=("x",),
    simulate_many=all_at_once(simulate_one),
    contaminations={"shift": Contamination(shift, fraction=0.1)},
    simulate_one=simulate_one,
    differentiable=True,
    log_prob=log_prob,
)
