"""How well a fitted model and the rows that it leaves out account for all observations together, in nats.

A model q that trusts a share p of the observations says nothing of the others. So that models which leave out different
rows can be compared, each is given what is not its own to be described by its neighbours, without itself:

    log prod_i { p q(x_i) + (1 - p) r_i },
    r_i = { sum_{j != i} (1 - v_j) K(x_i - x_j) + b(x_i) } / { sum_{j != i} (1 - v_j) + 1 },

with v_j what is left of the weight of row j, K the mean of Gaussian kernels of several widths, and b a very wide
Cauchy distribution for a row without neighbours. A model that stretches to explain a group of outliers predicts rows in
the gap before it that are not there, and pays for them; one that leaves out its own tail must describe scattered
rows by their neighbours, and pays for that. Few outliers are more likely than many: k of them have the prior
probability 0.9^k / (1 + k), up to a constant.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import gammaln

from nsmbayes.scatter import LocationScatter

_WIDTHS, _WIDE = (0.2, 0.8, 3.2), 10.0  # of the kernels, and of the Cauchy distribution, in robust scales
_FAR = 1e6  # scales beyond which a place is no longer told from another
_LEAST = 1e-300  # density
_EACH = 0.1  # nats for an outlier more


class Account(NamedTuple):
    """What describes observations without a model: their neighbours."""

    kernels: Float[np.ndarray, "n n"]
    """K(x_i - x_j), with zeros on the diagonal."""
    alone: Float[np.ndarray, " n"]
    """b(x_i)."""
    log_volume: float
    """Of the unit of both densities, in units of x."""

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], centre: LocationScatter) -> "Account":
        """In coordinates whitened by location and scatter."""
        d = x.shape[1]
        y = np.clip((x - np.asarray(centre.location)) @ np.asarray(centre.inverse).T, -_FAR, _FAR)
        squares = sum(np.square(column[:, None] - column) for column in y.T)
        kernels = np.mean([np.exp(-0.5 * squares / h**2) / (h * math.sqrt(2 * math.pi)) ** d for h in _WIDTHS], axis=0)
        np.fill_diagonal(kernels, 0)
        half = (1 + d) / 2
        logs = gammaln(half) - half * np.log(math.pi) - d * math.log(_WIDE)
        alone = np.exp(logs - half * np.log1p(np.square(y).sum(axis=1) / _WIDE**2))
        return cls(kernels, alone, float(np.linalg.slogdet(np.asarray(centre.factor))[1]))

    @property
    def log_beside(self) -> Float[np.ndarray, " n"]:
        """The log density of each observation, in units of x, by all others: what is known without a model."""
        return np.log(np.maximum((self.kernels.sum(axis=1) + self.alone) / len(self.alone), _LEAST)) - self.log_volume

    def nats(self, log_q: Float[np.ndarray, " n"], kept: Float[np.ndarray, " n"]) -> float:
        """The log probability of all observations under a model, and of what it leaves out.

        Example:
            >>> from nsmbayes.scatter import fit_location_scatter
            >>> rng = np.random.default_rng(0)
            >>> x = np.concatenate([rng.standard_normal(70), rng.standard_normal(30) + 12])[:, None]
            >>> account = Account.of(x, fit_location_scatter(x))
            >>> def normal(mean, sd):
            ...     return -0.5 * ((x[:, 0] - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))
            >>> without = account.nats(normal(0, 1), np.repeat([1.0, 0.0], [70, 30]))
            >>> without > account.nats(normal(4, 6), np.ones(100)) + 20
            True
        """
        left, n = 1 - kept, len(kept)
        beside = (self.kernels @ left + self.alone) / (left.sum() - left + 1)
        share = (kept.sum() + 0.5) / (n + 1)
        found = share * np.exp(np.clip(log_q + self.log_volume, -700, 700)) + (1 - share) * beside
        return float(np.log(np.maximum(found, _LEAST)).sum() - np.log1p(left.sum()) - _EACH * left.sum())
