"""Population pharmacokinetics: one compartment with first-order absorption, one patient per row.

Every patient takes one oral dose D, which is absorbed at rate ka into a volume V and eliminated at rate k = CL_i / V.
The concentration in the blood is `C(t) = D ka / V (exp(-k t) - exp(-ka t)) / (ka - k)`. Clearance differs between
patients, `CL_i = CL exp(omega eta)` with a standard normal eta. The data are the logarithms of the concentrations at
five times, with Gaussian noise of standard deviation sigma. Inference uses
theta = (log ka, log CL, log V, log omega, log sigma). The true values are similar to those of theophylline in adults.

Given eta, the five numbers of a patient are independent, so the likelihood is a one-dimensional integral.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks.base import Contamination, Task, all_at_once
from nsmbayes.tasks.contamination import choose_outliers, huber_shift

DOSE = 320.0
"""Milligrams."""
TIMES = np.array([0.5, 2.0, 6.0, 12.0, 24.0])
"""Hours after the dose at which blood samples are taken."""

_FRACTION = 0.1
_NODES = 250
_STEP = 0.6  # largest distance between nodes, in units of z
_REACH = 8.0  # the nodes cover this many standard deviations of eta,
_BEYOND = 3.0  # plus this much in log clearance, for patients that theta does not describe


def log_concentrations(theta: Float[Array, "5"], log_rate: Float[Array, ""]) -> Float[Array, "5"]:
    """The log concentrations (in mg / L) at `TIMES` of ONE patient with elimination rate k, without noise.

    Written as `log(D ka t / V) - (ka + k) t / 2 + log(sinh(y) / y)` with y = (ka - k) t / 2, which is as accurate near
    ka = k as elsewhere.

    Example:
        >>> theta = jnp.log(jnp.array([1.5, 2.8, 32.0, 0.3, 0.15]))
        >>> [f"{c:.2f}" for c in jnp.exp(log_concentrations(theta, jnp.log(2.8 / 32)))]
        ['5.15', '8.39', '6.28', '3.72', '1.30']
    """
    log_ka, _, log_V, _, _ = theta
    ka, k, t = jnp.exp(log_ka), jnp.exp(log_rate), jnp.asarray(TIMES, theta.dtype)
    return math.log(DOSE) + log_ka - log_V + jnp.log(t) - (ka + k) * t / 2 + _log_sinhc((ka - k) * t / 2)


def _log_sinhc(y: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`log(sinh(y) / y)`, by its series for small y, where the quotient would make the derivatives inaccurate."""
    small = jnp.abs(y) < 0.1
    s = jnp.where(small, y, 0.0) ** 2
    a = jnp.where(small, 1.0, jnp.abs(y))
    series = s * (1 / 6 + s * (-1 / 180 + s * (1 / 2835 - s / 37800)))
    return jnp.where(small, series, a + jnp.log(-jnp.expm1(-2 * a) / (2 * a)))


def simulate_one(key: Key[Array, ""], theta: Float[Array, "5"]) -> Float[Array, "5"]:
    """The observed log concentrations of one patient."""
    _, log_CL, log_V, log_omega, log_sigma = theta
    eta, *noise = jax.random.normal(key, (1 + len(TIMES),))
    clean = log_concentrations(theta, log_CL - log_V + jnp.exp(log_omega) * eta)
    return clean + jnp.exp(log_sigma) * jnp.stack(noise)


def log_prob(theta: Float[Array, "5"], x: Float[Array, "5"]) -> Float[Array, ""]:
    """The log density of one patient's observations, `log integral of phi(eta) prod_j N(x_j; f_j(eta), sigma^2)`.

    It uses the trapezoidal rule in z, where `k = sigma / (omega T) log(1 + exp(omega z))` is the rate and
    T^2 = sum_j t_j^2. Since |df_j / dk| <= t_j, neither eta nor the vector of all f_j / sigma changes faster than z,
    for any theta. So a few nodes suffice: the error decreases exponentially with their number. As a function of eta,
    the product can be a hundred times narrower than phi. The nodes do not depend on x.

    Example:
        >>> theta = jnp.log(jnp.array([1.5, 2.8, 32.0, 0.3, 0.15]))
        >>> x = log_concentrations(theta, jnp.log(2.8 / 32))
        >>> print(f"{log_prob(theta, x):.2f}")
        3.34
    """
    _, log_CL, log_V, log_omega, log_sigma = theta
    omega, sigma, log_k = jnp.exp(log_omega), jnp.exp(log_sigma), log_CL - log_V
    log_unit = log_sigma - log_omega - 0.5 * math.log((TIMES**2).sum())
    reach = _REACH * omega + _BEYOND
    low, high = (_inverse_softplus(jnp.exp(log_k + side * reach - log_unit)) / omega for side in (-1, 1))
    # If the nodes do not reach `high`, patients beyond them are neglected: at the true parameters, those with eta > 7.
    step = jnp.minimum((high - low) / (_NODES - 1), _STEP)
    v = omega * (low + step * jnp.arange(_NODES))
    log_rates = log_unit + jnp.log(jax.nn.softplus(v))
    eta = (log_rates - log_k) / omega
    log_slope = jax.nn.log_sigmoid(v) - jnp.log(jax.nn.softplus(v))
    curves = jax.vmap(log_concentrations, (None, 0))(theta, log_rates)
    squares = eta**2 + (((x - curves) / sigma) ** 2).sum(axis=1)
    constant = jnp.log(step) - 0.5 * (1 + len(TIMES)) * math.log(2 * math.pi) - len(TIMES) * log_sigma
    return constant + jax.nn.logsumexp(log_slope - 0.5 * squares)


def _inverse_softplus(y: Float[Array, ""]) -> Float[Array, ""]:
    return y + jnp.log(-jnp.expm1(-y))


def wrong_units(
    clean: Float[np.ndarray, "n 5"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 5"], Bool[np.ndarray, " n"]]:
    """Concentrations of a patient in micrograms instead of milligrams."""
    del keys
    return huber_shift(clean, fraction=fraction, shift=math.log(1000), rng=rng)


def double_dose(
    clean: Float[np.ndarray, "n 5"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 5"], Bool[np.ndarray, " n"]]:
    """Patients who took the dose twice: outliers close to the bulk."""
    del keys
    return huber_shift(clean, fraction=fraction, shift=math.log(2), rng=rng)


def swapped(
    clean: Float[np.ndarray, "n 5"], keys: Key[Array, " n"], *, fraction: float, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "n 5"], Bool[np.ndarray, " n"]]:
    """Patients whose blood samples are in reverse order."""
    del keys
    is_outlier = choose_outliers(len(clean), fraction=fraction, rng=rng)
    return np.where(is_outlier[:, None], clean[:, ::-1], clean), is_outlier


PK = Task(
    name="pk",
    prior=GaussianPrior(mean=np.log([1.2, 3.2, 35.0, 0.25, 0.2]), covariance=np.square([0.5, 0.3, 0.3, 0.4, 0.4])),
    theta_true=np.log([1.5, 2.8, 32.0, 0.3, 0.15]),
    parameter_names=("log ka", "log CL", "log V", "log omega", "log sigma"),
    x_names=tuple(f"log C({t:g} h)" for t in TIMES),
    simulate_many=all_at_once(simulate_one),
    contaminations={
        "wrong-units": Contamination(wrong_units, fraction=_FRACTION),
        "double-dose": Contamination(double_dose, fraction=_FRACTION),
        "swapped": Contamination(swapped, fraction=_FRACTION),
    },
    simulate_one=simulate_one,
    differentiable=True,
    log_prob=log_prob,
)
