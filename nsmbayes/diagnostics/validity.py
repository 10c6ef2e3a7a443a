"""Failures of simulations as a function of theta: a classifier, and posteriors corrected with it.

A network trained on the simulations that did not fail learns p(x | theta, valid). Each existing observation shows that
theta can produce a valid one, so the likelihood of n observations is that of the network times P(valid | theta)^n.
Without this factor a posterior is biased towards parameters that often fail.
"""

import functools
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.psis import smooth, trusted_k
from nsmbayes._internal.random import random_key
from nsmbayes.calls import RowStatus
from nsmbayes.errors import ConvergenceError, InputError
from nsmbayes.posteriors import Posterior, StoredPosterior
from nsmbayes.robustness import Certificate, Check
from nsmbayes.simulators.campaigns import Campaign

_MOST_ROWS = 200_000  # more rows would not change a classifier of this size
_FEWEST = 10  # minimum number of failed rows to train a classifier
_HELD_OUT = 0.2
_HIDDEN, _DEPTH = 32, 2
_STEPS, _BATCH, _RATE = 2000, 512, 3e-3
_CHAINS, _DRAWS = 4, 2500


@dataclass(frozen=True, eq=False)
class Validity:
    """P(valid | theta), the probability that a simulation does not fail. Built by `nsmbayes.diagnostics.validity`."""

    network: eqx.nn.MLP | None
    """Log odds of standardised theta; None if no dependence of failures on theta was found."""
    centre: Float[np.ndarray, " d"]
    scale: Float[np.ndarray, " d"]
    rate: float
    """The fraction of valid rows."""
    gain: float
    """Mean log probability of a held-out row's status, minus that given by the rate alone, in nats."""

    @double_precision
    def log_prob(self, theta: Any) -> Float[np.ndarray, " k"]:
        """log P(valid | theta) for each row of `theta`."""
        theta = checks.matrix(theta, "theta", width=len(self.centre))
        if self.network is None:
            return np.full(len(theta), np.log(self.rate))
        return np.asarray(_log_valid(self.network, jnp.asarray((theta - self.centre) / self.scale)))

    def describe(self) -> str:
        """Describe the result in one sentence."""
        if self.network is None:
            return f"{self.rate:.2%} of the rows are valid; no dependence on theta found: nothing has to be corrected."
        return (
            f"{self.rate:.2%} of the rows are valid. Which ones depends on theta: a classifier is better than this "
            f"rate by {self.gain:.2g} nats per held-out row."
        )

    def correct(self, posterior: Posterior, *, seed: int = 0) -> Posterior:
        """Multiply `posterior` by P(valid | theta)^n, n its number of observations, by reweighting its draws.

        The result has draws, weights and warnings, but no network. It is not certified, because bounds are those of the
        uncorrected posterior. Raises `ConvergenceError` if the correction is too strong for importance weights.
        """
        posterior = checks.instance(posterior, "posterior", Posterior, "what build_posterior returned")
        draws = posterior.chains(_DRAWS, _CHAINS, checks.integer(seed, "seed")).reshape(-1, len(posterior.mean))
        found = smooth(posterior.n * self.log_prob(draws))
        k, weights = float(found.k), np.exp(found.log_weights)
        if k > trusted_k(len(draws)):
            raise ConvergenceError(
                f"The correction is too strong for draws of the posterior to be reweighted (Pareto k {k:.2f}): nearly "
                "all of them lie where the simulator fails. Restrict the prior to where it works, or fix it."
            )
        weights /= weights.sum()
        mean = weights @ draws
        covariance = np.atleast_2d((weights[:, None] * (draws - mean)).T @ (draws - mean))
        rows = np.random.default_rng(seed).choice(len(draws), size=len(draws), p=weights)
        said = (
            f"Corrected for simulations that failed ({1 - self.rate:.2%}): multiplied by P(valid | theta)^"
            f"{posterior.n}, by a classifier (Pareto k {k:.2f})."
        )
        why = "it was corrected for simulations that failed: the bounds are those of the posterior before"
        certificate = Certificate(theorem="no theorem", checks={"A4": Check(False, why)})
        try:
            centre = posterior.location_scatter
        except InputError:  # tied data have no location and scatter
            centre = None
        return StoredPosterior(
            posterior.provenance._replace(certify=functools.partial(_kept, certificate), judge=None),
            draws[rows][None],
            posterior.x,
            prior=posterior.prior,
            moments=(mean, covariance),
            gaussian=False,
            weights=posterior.weights,
            location_scatter=centre,
            influence=None,
            factor=None,
            beta=posterior.beta,
            result=None,
            calibration=posterior.calibration,
            warnings=(said, *posterior.warnings),
            surrogate_check=posterior.surrogate_check,
        )


def _kept(certificate: Certificate, _: Posterior) -> Certificate:
    """Return the given certificate; stands in for the function that certifies."""
    return certificate


@double_precision
def validity(campaign: Campaign | str, *, seed: int = 0) -> Validity:
    """Learn from a campaign which parameters make its simulator fail.

    Args:
        campaign: the campaign that `nsmbayes.simulate` returned, or its folder. At most 200,000 rows are used.
        seed: for the network, and for the choice of held-out rows (a fifth).

    Example:
        >>> import tempfile
        >>> import nsmbayes as nsm
        >>> def simulator(rng, theta):
        ...     return theta + rng.normal() if rng.uniform() < 0.9 else [float("nan")]
        >>> prior = nsm.GaussianPrior(mean=[0.0], covariance=[1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = nsm.simulate(simulator, prior, 400, out=f"{folder}/c.zarr", max_failures=1, progress=False)
        ...     found = nsm.diagnostics.validity(made)
        >>> found.network is None or found.gain < 0.05
        True
    """
    campaign = campaign if isinstance(campaign, Campaign) else Campaign(campaign)
    theta, valid = _rows(campaign)
    rate = float(valid.mean())
    if not valid.any():
        raise InputError(f"`{campaign.path}` has no valid rows: nothing can be learnt from it.")
    centre, scale = theta.mean(axis=0), np.maximum(theta.std(axis=0), np.finfo(float).tiny)
    if (~valid).sum() < _FEWEST:
        return Validity(None, centre, scale, rate, 0.0)
    order = np.random.default_rng(checks.integer(seed, "seed")).permutation(len(theta))
    held = order[: int(_HELD_OUT * len(order))]
    rest = order[len(held) :]
    network = _train(jnp.asarray((theta - centre) / scale)[rest], jnp.asarray(valid[rest]), random_key(seed))
    log_valid = np.asarray(_log_valid(network, jnp.asarray((theta[held] - centre) / scale)))
    log_failed = np.log(-np.expm1(np.minimum(log_valid, -1e-12)))
    by_rate = np.where(valid[held], np.log(rate), np.log1p(-rate))
    gains = np.where(valid[held], log_valid, log_failed) - by_rate
    gain, error = float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))
    return Validity(network if gain > 2 * error else None, centre, scale, rate, gain)


def _rows(campaign: Campaign) -> tuple[Float[np.ndarray, "m d"], Bool[np.ndarray, " m"]]:
    theta, valid, count = [np.zeros((0, campaign.d_theta))], [np.zeros(0, dtype=bool)], 0
    for rows in campaign.blocks():
        theta.append(rows.theta)
        valid.append(rows.status == RowStatus.VALID)
        count += len(rows.theta)
        if count >= _MOST_ROWS:
            break
    return np.concatenate(theta)[:_MOST_ROWS], np.concatenate(valid)[:_MOST_ROWS]


def _log_valid(network: eqx.nn.MLP, t: Float[Array, "m d"]) -> Float[Array, " m"]:
    return jax.nn.log_sigmoid(jax.vmap(network)(t))


@eqx.filter_jit
def _train(t: Float[Array, "m d"], valid: Bool[Array, " m"], key: PRNGKeyArray) -> eqx.nn.MLP:
    """Train a classifier by cross entropy."""
    start, batches = jax.random.split(key)
    network = eqx.nn.MLP(t.shape[1], "scalar", _HIDDEN, _DEPTH, activation=jnp.tanh, key=start)
    optimiser = optax.adam(optax.cosine_decay_schedule(_RATE, _STEPS))
    arrays, static = eqx.partition(network, eqx.is_inexact_array)

    def loss(arrays: Any, rows: Array) -> Float[Array, ""]:
        odds = jax.vmap(eqx.combine(arrays, static))(t[rows])
        return optax.sigmoid_binary_cross_entropy(odds, valid[rows].astype(odds.dtype)).mean()

    def step(state: Any, key: PRNGKeyArray) -> tuple[Any, Float[Array, ""]]:
        arrays, memory = state
        rows = jax.random.randint(key, (min(_BATCH, len(t)),), 0, len(t))
        value, gradient = jax.value_and_grad(loss)(arrays, rows)
        updates, memory = optimiser.update(gradient, memory)
        return (optax.apply_updates(arrays, updates), memory), value

    (arrays, _), _ = jax.lax.scan(step, (arrays, optimiser.init(arrays)), jax.random.split(batches, _STEPS))
    return eqx.combine(arrays, static)
