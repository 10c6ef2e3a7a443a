"""Posterior predictive draws: data sets from the simulator, or the surrogate, at draws of the posterior."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.columns import Names
from nsmbayes._internal.random import random_key
from nsmbayes.errors import InputError
from nsmbayes.simulators import Simulator, as_simulator
from nsmbayes.surrogates import Density

MOST_ROWS = 500
"""Default maximum number of rows of a predictive data set."""
_BLOCK = 512  # rows that are simulated in one call
_STREAM = 5  # stream of random numbers, different from that of the sampler

Statistic = Callable[[Float[np.ndarray, "n d_x"], Float[np.ndarray, " n"]], Any]


class Source(NamedTuple):
    """A simulator or surrogate that draws observations at given parameters."""

    draw: Callable[[Float[np.ndarray, "k d"], int, int], Float[np.ndarray, "k each d_x"]]
    """Function (parameters, number per theta, seed) that returns observations at each theta."""
    name: str
    """"simulator" or "surrogate"."""

    @classmethod
    def of(cls, posterior: Any, simulator: Any = None) -> "Source":
        """Use the simulator if it is given, otherwise the surrogate of the posterior."""
        if simulator is not None:
            return cls(_Simulated(as_simulator(simulator), posterior.x.shape[1]), "simulator")
        if posterior.density is None:
            raise InputError(
                f"This {posterior.label} posterior has no surrogate to draw observations from: pass `simulator`, "
                "e.g. a nsmbayes.JaxSimulator, a nsmbayes.NumpySimulator or a task."
            )
        return cls(_Drawn(posterior.density), "surrogate")


class _Drawn(NamedTuple):
    density: Density

    def __call__(self, theta: np.ndarray, each: int, seed: int) -> np.ndarray:
        return self.density.draw(theta, each, np.random.default_rng([_STREAM, seed]))


class _Simulated(NamedTuple):
    simulator: Simulator
    width: int

    def __call__(self, theta: np.ndarray, each: int, seed: int) -> np.ndarray:
        copies = max(1, _BLOCK // len(theta))  # blocks of one size, to limit compilation
        parts = [self._block(theta, min(copies, each - start), seed, start) for start in range(0, each, copies)]
        return np.concatenate(parts, axis=1)

    def _block(self, theta: np.ndarray, copies: int, seed: int, start: int) -> np.ndarray:
        keys = jax.random.split(jax.random.fold_in(random_key(seed, _STREAM), start), len(theta) * copies)
        x = checks.matrix(self.simulator.rows(keys, np.repeat(theta, copies, axis=0)), "x of the simulator")
        if x.shape[1] != self.width:
            raise InputError(
                f"`simulator` makes {x.shape[1]} columns, and the observations have {self.width}. Pass the simulator "
                "whose summaries the observations are."
            )
        return x.reshape(len(theta), copies, -1)


class Checked(NamedTuple):
    """A statistic of the observations, compared with those of predictive data sets."""

    observed: float
    predicted: Float[np.ndarray, " m"]
    p_value: float
    """Two-sided: fraction of predictive data sets that are at least as extreme; at least 2 / (m + 1)."""


@dataclass(frozen=True)
class Predictive:
    """Predictive data sets, and the observed data set for comparison. Built by `posterior.predict`.

    Both are weighted in the same way: an observation by its weight, a predicted value by the weight of an observation
    with this value. Posterior predictive p-values are conservative, because the parameters were fitted to the same
    data. `posterior.verdict()` accounts for that.
    """

    theta: Float[np.ndarray, "m d"]
    x: Float[np.ndarray, "m rows d_x"]
    weights: Float[np.ndarray, "m rows"]
    observed: Float[np.ndarray, "n d_x"]
    observed_weights: Float[np.ndarray, " n"]
    source: str
    """"simulator" or "surrogate"."""
    x_names: Names
    location_scatter: tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]

    @property
    def columns(self) -> tuple[str, ...]:
        """A name for each column of x."""
        return column_labels(self.x_names, self.x.shape[2])

    def p_value(self, statistic: Statistic) -> Checked:
        """Compare a statistic `f(x, weights) -> number` of the observations with those of the predictive data sets.

        Example:
            >>> import numpy as np
            >>> from nsmbayes.posteriors.predictive import Predictive
            >>> rng = np.random.default_rng(0)
            >>> x, y, ones = rng.standard_normal((99, 50, 1)), rng.standard_normal((50, 1)), np.ones((99, 50))
            >>> found = Predictive(np.zeros((99, 1)), x, ones, y, ones[0], "simulator", None, (np.zeros(1), np.eye(1)))
            >>> found.p_value(lambda x, w: np.average(x[:, 0], weights=w)).p_value > 0.02
            True
        """
        own = checks.real(statistic(self.observed, self.observed_weights), "statistic")
        values = [checks.real(statistic(x, w), "statistic") for x, w in zip(self.x, self.weights, strict=True)]
        predicted = np.asarray(values)
        above, below = (predicted >= own).sum(), (predicted <= own).sum()
        return Checked(own, predicted, float(min(1.0, 2 * (1 + min(above, below)) / (1 + len(predicted)))))

    def check(self, statistics: Mapping[str, Statistic] | None = None) -> dict[str, Checked]:
        """Compare several named statistics; by default the weighted mean, spread and skewness of every column."""
        return {name: self.p_value(one) for name, one in (statistics or self._usual()).items()}

    def table(self, statistics: Mapping[str, Statistic] | None = None) -> str:
        """Format the results of `check` as a table."""
        lines = [f"{'statistic':<28}{'observed':>12}{'predicted':>12}{'2.5 %':>12}{'97.5 %':>12}{'p':>8}"]
        for name, one in self.check(statistics).items():
            low, middle, high = np.quantile(one.predicted, [0.025, 0.5, 0.975])
            numbers = "".join(f"{value:>12.4g}" for value in (one.observed, middle, low, high))
            lines.append(f"{name[:27]:<28}{numbers}{one.p_value:>8.3f}")
        return "\n".join(lines)

    def _usual(self) -> dict[str, Statistic]:
        kinds = {"mean": 1, "sd": 2, "skewness": 3}
        return {
            f"{kind} of {name}": _Moment(j, order)
            for j, name in enumerate(self.columns)
            for kind, order in kinds.items()
        }


class _Moment(NamedTuple):
    """The weighted mean, standard deviation or skewness of a column."""

    column: int
    order: int

    def __call__(self, x: np.ndarray, weights: np.ndarray) -> float:
        share, values = weights / weights.sum(), x[:, self.column]
        mean = share @ values
        if self.order == 1:
            return float(mean)
        spread = np.sqrt(share @ (values - mean) ** 2)
        if self.order == 2 or spread == 0:
            return float(spread)
        return float(share @ ((values - mean) / spread) ** 3)


def column_labels(names: Names, d_x: int) -> tuple[str, ...]:
    """The names of the columns of x, or default names."""
    if names is not None:
        return names
    return ("x",) if d_x == 1 else tuple(f"column {j}" for j in range(d_x))


def predict(posterior: Any, simulator: Any, *, m: int, rows: int | None, seed: int) -> Predictive:
    """Draw predictive data sets; see `posterior.predict`."""
    m, seed = checks.integer(m, "m", at_least=1), checks.integer(seed, "seed")
    each = min(posterior.n, MOST_ROWS) if rows is None else checks.integer(rows, "rows", at_least=1)
    source, theta = Source.of(posterior, simulator), posterior.sample((m,), seed=seed)
    x = source.draw(theta, each, seed)
    weights = posterior.weight_at(x.reshape(m * each, -1)).reshape(m, each)
    return Predictive(
        theta,
        x,
        weights,
        posterior.x if source.name == "simulator" else posterior.noisy_x,
        posterior.weights,
        source.name,
        posterior.x_names,
        posterior.location_scatter,
    )
