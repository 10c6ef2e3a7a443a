"""Where posteriors of many data sets are, roughly: draws of the prior, weighed by the likelihood of some rows."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers.compiled import Start
from nsmbayes.surrogates import Density, MixtureDensity

_DRAWS = 2000
_ROWS = 64  # observations of each data set
_PER_PARAMETER = 5  # effective draws that are left
_BISECTIONS = 30


class Pool(NamedTuple):
    """Draws of the prior that all data sets share."""

    density: MixtureDensity
    u: Float[np.ndarray, "draws d"]
    theta: Float[np.ndarray, "draws d"]

    @classmethod
    @double_precision
    def of(cls, prior: UnconstrainedPrior, density: MixtureDensity, seed: int) -> "Pool":
        """As many as are worth their time."""
        u = np.asarray(prior.sample(seed_key(seed), _DRAWS))
        return cls(density, u, constrain_rows(prior, u))

    @double_precision
    def starts(
        self, x: list[Float[np.ndarray, "_ d_x"]], counts: list[Float[np.ndarray, " _"]], seed: int, size: int
    ) -> list[Start]:
        """Mean and covariance of draws weighed for each data set, of which observations count so much.

        With at most `size` data sets; for fewer nothing is compiled again.
        """
        rows, weights = np.zeros((size, _ROWS, x[0].shape[1])), np.zeros((size, _ROWS))
        for i, (each, count) in enumerate(zip(x, counts, strict=True)):
            some = np.random.default_rng([seed, i]).permutation(len(each))[:_ROWS]
            rows[i, : len(some)], weights[i, : len(some)] = each[some], count[some]
            rows[i, len(some) :] = each[some[0]]
        logs = map_rows(_log_likelihoods, self.theta, self.density, rows, weights)
        return [self._start(each) for each in logs.T[: len(x)]]

    def _start(self, logs: Float[np.ndarray, " draws"]) -> Start:
        """Weights are raised to a power that leaves enough of them."""
        logs = np.where(np.isfinite(logs), logs, -1e300)
        logs = logs - logs.max()
        d = self.u.shape[1]
        low, high = 0.0, 1.0
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            weights = np.exp(middle * logs)
            enough = weights.sum() ** 2 > _PER_PARAMETER * d * (weights**2).sum()
            low, high = (middle, high) if enough else (low, middle)
        weights = np.exp(low * logs)
        weights = weights / weights.sum()
        mean = weights @ self.u
        offsets = self.u - mean
        covariance = (weights[:, None] * offsets).T @ offsets
        return Start(mean, covariance + 1e-9 * np.trace(covariance) / d * np.eye(d))


def _log_likelihoods(
    theta: Float[Array, " d"], density: Density, x: Float[Array, "k n d_x"], counts: Float[Array, "k n"]
) -> Float[Array, " k"]:
    logs = density.log_probs(theta, x.reshape(-1, x.shape[2])).reshape(counts.shape)
    return jnp.where(counts > 0, counts * logs, 0.0).sum(axis=1)
