"""Rough locations of many posteriors: draws of the prior, weighted by the likelihood of some rows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import call_each, map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers.compiled import Start
from nsmbayes.surrogates import Density, MixtureDensity

_DRAWS = 2000
_ROWS = 64  # observations of each data set
_PER_PARAMETER = 5  # effective draws per parameter after tempering
_BISECTIONS = 14
_AT_ONCE = 64  # data sets whose weights are in memory at once


class Pool(NamedTuple):
    """Draws of the prior that all data sets share."""

    density: MixtureDensity
    u: Float[np.ndarray, "draws d"]
    theta: Float[np.ndarray, "draws d"]

    @classmethod
    @double_precision
    def of(cls, prior: UnconstrainedPrior, density: MixtureDensity, seed: int) -> "Pool":
        """Draw from the prior."""
        u = np.asarray(prior.sample(seed_key(seed), _DRAWS))
        return cls(density, u, constrain_rows(prior, u))

    @double_precision
    def starts(
        self, x: list[Float[np.ndarray, "_ d_x"]], counts: list[Float[np.ndarray, " _"]], seed: int, size: int
    ) -> Start:
        """Mean and covariance of the draws, weighted for each data set; `counts` are the weights of its observations.

        The arrays are filled up to `size` data sets, so that fewer of them need no new compilation.
        """
        rows, weights = np.zeros((size, _ROWS, x[0].shape[1])), np.zeros((size, _ROWS))
        orders = {n: np.random.default_rng([seed, n]).permutation(n)[:_ROWS] for n in {len(each) for each in x}}
        for i, (each, count) in enumerate(zip(x, counts, strict=True)):
            some = orders[len(each)]
            rows[i, : len(some)], weights[i, : len(some)] = each[some], count[some]
            rows[i, len(some) :] = each[some[0]]
        logs = map_rows(_log_likelihoods, self.theta, self.density, rows, weights)
        parts = [(np.ascontiguousarray(part),) for part in np.split(logs.T, -(-size // _AT_ONCE))]
        found = call_each(_moments, parts, self.u)
        return Start(*(np.concatenate(each)[: len(x)] for each in zip(*found, strict=True)))


def _moments(logs: Float[Array, "sets draws"], u: Float[Array, "draws d"]) -> tuple[Array, Array]:
    """Means and covariances, with the weights tempered until enough of them are effective."""
    logs = jnp.where(jnp.isfinite(logs), logs, -1e300)
    logs -= logs.max(axis=1, keepdims=True)
    d = u.shape[1]

    def step(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        weights = jnp.exp(middle[:, None] * logs)
        enough = weights.sum(axis=1) ** 2 > _PER_PARAMETER * d * (weights**2).sum(axis=1)
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    power, _ = jax.lax.fori_loop(0, _BISECTIONS, step, (jnp.zeros(len(logs)), jnp.ones(len(logs))))
    weights = jax.nn.softmax(power[:, None] * logs, axis=1)
    centre = u.mean(axis=0)
    offsets = u - centre
    means = weights @ offsets
    products = (offsets[:, :, None] * offsets[:, None, :]).reshape(len(offsets), -1)
    covariances = (weights @ products).reshape(-1, d, d) - means[:, :, None] * means[:, None, :]
    floor = 1e-9 * jnp.trace(covariances, axis1=1, axis2=2) / d
    return centre + means, covariances + floor[:, None, None] * jnp.eye(d)


def _log_likelihoods(
    theta: Float[Array, " d"], density: Density, x: Float[Array, "k n d_x"], counts: Float[Array, "k n"]
) -> Float[Array, " k"]:
    logs = density.log_probs(theta, x.reshape(-1, x.shape[2])).reshape(counts.shape)
    return jnp.where(counts > 0, counts * logs, 0.0).sum(axis=1)
