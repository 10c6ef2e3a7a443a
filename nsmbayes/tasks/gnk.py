"""The g-and-k distribution: four parameters for location, scale, skewness and tail weight.

It has no density in closed form but is easy to simulate: it is defined by its quantile function
`G(u) = A + B (1 + c tanh(g u / 2)) (1 + u^2)^k u` at a standard normal u. The paper writes the hyperbolic tangent as
(1 - exp(-g u)) / (1 + exp(-g u)). Inference uses theta = (A, log B, g, log k). The quantile function and the exact
density are in `nsmbayes.tasks.gnk_exact`.
"""

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks import gnk_exact
from nsmbayes.tasks.base import Contamination, Task, all_at_once
from nsmbayes.tasks.contamination import huber_shift


def simulate_one(key: Key[Array, ""], theta: Float[Array, "4"]) -> Float[Array, "1"]:
    """One draw x = G(u) with u ~ N(0, 1)."""
    return gnk_exact.quantile(theta, jax.random.normal(key))[None]


def log_prob(theta: Float[Array, "4"], x: Float[Array, "1"]) -> Float[Array, ""]:
    """The exact log density of one observation."""
    return gnk_exact.log_prob(theta, x[0])


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
    contaminations={"shift": Contamination(shift, fraction=0.1)},
    simulate_one=simulate_one,
    differentiable=True,
    log_prob=log_prob,
)
