"""The likelihood of observations with outliers: each is a draw of the model, or described by neighbouring outliers.

Under a model q, all observations together have the density

    prod_i { p q(x_i) + (1 - p) r_i },
    r_i = { sum_{j != i} (1 - g_j) K(x_i - x_j) + b(x_i) } / { sum_{j != i} (1 - g_j) + 1 },

where g_i = p q(x_i) / { p q(x_i) + (1 - p) r_i } is the probability that row i is a draw of the model, p is the mean of
the g_i, K is the mean of Gaussian kernels of several widths, and b is a very wide Cauchy distribution for a row without
neighbours. So outliers are described by the other outliers. g and r determine each other; they are computed by steps of
expectation maximisation in which r is multiplied by exp(-cost), and a last step with r itself. A model that stretches
to explain a group of outliers predicts rows in the gap before the group, where there are none, so its likelihood falls.
A model that leaves out its own tail must describe scattered rows by their neighbours, so its likelihood falls too. Few
outliers are more likely than many: k outliers, at most half of the rows, have the prior probability
exp(-cost k) / (1 + k), up to a constant, and with probability `clean` there are none.

As a function of the parameter of q, this is a likelihood that allows for outliers without knowing which rows they are.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes._internal.parallel import in_threads
from nsmbayes.scatter import LocationScatter

_WIDTHS, _WIDE = (0.2, 0.8, 3.2), 10.0  # of the kernels, and of the Cauchy distribution, in robust scales
_FAR = 1e6  # in scales: coordinates are clipped there
_LEAST = 1e-300  # smallest density
_DOUBT = 0.3  # initial share of outliers
_STEPS = 6  # of expectation maximisation
_HALF, _BEYOND = 0.5, 2.0  # above this share of outliers, each further outlier costs this many nats more
_CACHED = 20_000  # densities computed at once, so that they fit into the processor's cache
_LOG_RANGE = 600.0  # nats: log densities, relative to one in robust scales, are clipped there


class Explained(NamedTuple):
    """The observations under k models."""

    nats: Float[np.ndarray, " k"]
    """The log density of all observations together under each model, in robust scales."""
    good: Float[np.ndarray, "k n"]
    """The probability that an observation is a draw of the model."""


class Account(NamedTuple):
    """The description of observations by their neighbours, without a model."""

    y: Float[np.ndarray, "n d"]
    """The observations, whitened by location and scatter."""
    kernels: Float[np.ndarray, "n n"]
    """K(y_i - y_j), with zeros on the diagonal; in single precision, since products with it take most of the time."""
    alone: Float[np.ndarray, " n"]
    """b(y_i)."""
    log_volume: float
    """Log volume of one unit of the whitened coordinates, in units of x."""

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], centre: LocationScatter) -> "Account":
        """The account of observations `x`, whitened by location and scatter."""
        y = whitened(x, centre)
        kernels = kernels_between(y, y)
        np.fill_diagonal(kernels, 0)
        return cls(
            y, kernels.astype(np.float32), density_alone(y), float(np.linalg.slogdet(np.asarray(centre.factor))[1])
        )

    @property
    def beside(self) -> Float[np.ndarray, " n"]:
        """The kernel density of all other observations at each observation, in robust scales."""
        return np.maximum((self.kernels.sum(axis=1) + self.alone) / len(self.alone), _LEAST)

    def explain(self, log_q: Float[np.ndarray, "k n"], *, cost: float, clean: float) -> Explained:
        """The observations under k models, given each model's log density at each observation, in units of x.

        Example:
            >>> from nsmbayes.scatter import fit_location_scatter
            >>> rng = np.random.default_rng(0)
            >>> x = np.concatenate([rng.standard_normal(70), rng.standard_normal(30) + 12])[:, None]
            >>> mean, sd = np.array([[0.0], [4.0]]), np.array([[1.0], [6.0]])
            >>> log_q = -0.5 * ((x[:, 0] - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))
            >>> nats, good = Account.of(x, fit_location_scatter(x)).explain(log_q, cost=0.2, clean=0.05)
            >>> bool(nats[0] > nats[1] + 20), good[0, [0, 99]].round(1).tolist()
            (True, [1.0, 0.0])
        """
        parts = np.array_split(log_q, max(1, log_q.size // _CACHED))
        found = in_threads(lambda part: self._explain(part, cost, clean), parts)
        return Explained(*map(np.concatenate, zip(*found, strict=True)))

    def _explain(self, log_q: Float[np.ndarray, "k n"], cost: float, clean: float) -> Explained:
        n = len(self.alone)
        logs = np.clip(np.nan_to_num(log_q, nan=-np.inf) + self.log_volume, -_LOG_RANGE, _LOG_RANGE)
        q = np.exp(logs)
        others = _DOUBT * self.beside
        left = others / ((1 - _DOUBT) * q + others)  # 1 - g
        ours, theirs, total = np.empty_like(q), np.empty_like(q), left.sum(axis=1, keepdims=True)
        for step in range(_STEPS + 1):  # both densities times the divisor of r; in place, since this is the slow part
            total = left.sum(axis=1, keepdims=True)
            share = (n - total + 0.5) / (n + 1)
            np.multiply(left, -share, out=ours)
            ours += share * (total + 1)
            ours *= q
            np.add(left.astype(np.float32) @ self.kernels, self.alone, out=theirs)
            theirs *= (1 - share) * (math.exp(-cost) if step < _STEPS else 1.0)
            if step == _STEPS:
                break
            ours += theirs
            np.divide(theirs, ours, out=left)
        k, both = total[:, 0], ours + theirs
        good = ours / both
        nats = np.log(np.maximum(both / (total - left + 1), _LEAST)).sum(axis=1)
        nats -= np.log1p(k) + cost * k + _BEYOND * np.maximum(k - _HALF * n, 0)
        if clean == 0:
            return Explained(nats, good)
        all_good, some_bad = logs.sum(axis=1) + np.log(clean), nats + np.log1p(-clean)
        both = np.logaddexp(all_good, some_bad)
        return Explained(both, good + (1 - good) * np.exp(all_good - both)[:, None])


def beside_outliers(y: Any, others: Any, left: Any, xp: Any = np) -> Any:
    """r at rows y, in robust scales, if the rows `others` are outliers with probabilities `left`."""
    sums = kernels_between(y, others, xp) @ left + density_alone(y, xp)
    return xp.maximum(sums / (left.sum() + 1), _LEAST)


def whitened(x: Float[np.ndarray, "n d"], centre: LocationScatter) -> Float[np.ndarray, "n d"]:
    """Observations whitened by location and scatter, i.e. in robust scales."""
    return np.clip((x - np.asarray(centre.location)) @ np.asarray(centre.inverse).T, -_FAR, _FAR)


def kernels_between(y: Any, others: Any, xp: Any = np) -> Any:
    """K(y_i - y_j) for rows y_i of `y` and y_j of `others`, a normalised density; `xp` is NumPy or jax.numpy."""
    d = y.shape[1]
    squares = sum(xp.square(y[:, j, None] - others[:, j]) for j in range(d))
    parts = [xp.exp(-0.5 / h**2 * squares) / (h * math.sqrt(2 * math.pi)) ** d for h in _WIDTHS]
    return sum(parts) / len(parts)


def density_alone(y: Any, xp: Any = np) -> Any:
    """b(y), the density of a Cauchy distribution."""
    d = y.shape[1]
    half = (1 + d) / 2
    constant = math.lgamma(half) - half * math.log(math.pi) - d * math.log(_WIDE)
    return xp.exp(constant - half * xp.log1p(xp.square(y).sum(axis=1) / _WIDE**2))
