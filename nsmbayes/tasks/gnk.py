"""The g-and-k distribution: four parameters for location, scale, skewness and tail weight.

It has no density in closed form but is easily simulated, since it is defined by its quantile function
`G(u) = A + B (1 + c tanh(g u / 2)) (1 + u^2)^k u` at a standard normal u. The paper writes the hyperbolic
tangent as (1 - exp(-g u)) / (1 + exp(-g u)). Inference works with theta = (A, log B, g, log k).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nsmbayes.contamination import huber_shift
from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks.base import Contamination, Task, all_at_once

C = 0.8
"""How far skewness can go. Below about 0.83, G increases for every g and every k >= 0."""


def quantile(theta: Float[Array, "4"], u: Float[Array, ""]) -> Float[Array, ""]:
    """The quantile function G(u) of ONE standard normal u, at theta = (A, log B, g, log k).

    Example:
        >>> print(quantile(jnp.array([1.0, 0.5, 1.0, -1.0]), jnp.array(0.0)))
        1.0
    """
    A, log_B, g, log_k = theta
    k = jnp.exp(log_k)
    return A + jnp.exp(log_B + k * jnp.log1p(u * u)) * (1 + C * jnp.tanh(g * u / 2)) * u


def simulate_one(key: Key[Array, ""], theta: Float[Array, "4"]) -> Float[Array, "1"]:
    """One draw x = G(u) with u ~ N(0, 1)."""
    return quantile(theta, jax.random.normal(key))[None]


def shift(
    clean: Float[np.ndarray, "n 1"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 1"], Bool[np.ndarray, " n"]]:
    """The paper's one-sided outliers: draws of the true distribution minus 50."""
    del keys
    return huber_shift(clean, fraction=fraction, shift=-50.0, rng=rng)


GNK = Task(
    name="gnk",
    prior=GaussianPrior(mean=[0.0, 0.7, 0.0, -1.5], covariance=[5.0, 0.5, 4.0, 0.25]),
    theta_true=np.array([1.0, 0.5, 1.0, -1.0]),
    parameter_names=("A", "log B", "g", "log k"),
    x_names=("x",),
    simulate_many=all_at_once(simulate_one),
    kinds={"shift": Contamination(shift, fraction=0.1)},
    simulate_one=simulate_one,
    differentiable=True,
)
