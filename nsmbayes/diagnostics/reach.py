"""Distances of observations from all simulations, checked before inference."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from nsmbayes._internal import checks
from nsmbayes._internal.columns import Names
from nsmbayes._internal.text import shorten
from nsmbayes.errors import InputError
from nsmbayes.posteriors.predictive import column_labels

MOST = 10_000
"""Maximum number of simulations to compare observations with; a random subset if there are more."""
_NEIGHBOURS = 5
_TAIL = 0.001  # a row is inside if this fraction of the simulations is farther from the other simulations
_MANY = 0.5  # if this fraction of the rows is outside, the data as a whole are outside
_FEWEST = 100  # minimum number of simulations for the check


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Distance of each observation from all simulations. Built by `method.check(x)`."""

    distance: Float[np.ndarray, " n"]
    """Distance of each row from the nearest simulations, divided by the distance that only one in a thousand
    simulations exceeds: above 1 the row is outside."""
    beyond: Float[np.ndarray, "n d_x"]
    """Distance of each entry beyond the simulated range of its column, in robust standard deviations of the
    simulations; 0 inside the range."""
    columns: tuple[str, ...]
    simulations: int
    """Number of simulations in the comparison."""
    source: str
    """Source of the simulations: "simulations" or "surrogate"."""

    @property
    def outside(self) -> Bool[np.ndarray, " n"]:
        """Mask of rows that are farther from all simulations than nearly all simulations are from each other."""
        return (self.distance > 1) | (self.beyond > 0).any(axis=1)

    @property
    def verdict(self) -> str:
        """The result in words: "inside", "inside but for k rows" or "outside all simulations"."""
        count = int(self.outside.sum())
        if count == 0:
            return "inside"
        if count >= _MANY * len(self.distance):
            return "outside all simulations"
        return f"inside but for {count:,} row{'s' * (count > 1)}"

    def explain(self) -> str:
        """The verdict, with the numbers behind it."""
        n, rows = len(self.distance), np.flatnonzero(self.outside)
        said = f"{self.verdict[0].upper()}{self.verdict[1:]}: {n:,} observations against {self.simulations:,} "
        said += "simulations." if self.source == "simulations" else "draws of the surrogate over the prior."
        if not len(rows):
            return said
        far = self.beyond.max(axis=0)
        columns = [f"{shorten(self.columns[j])} by up to {far[j]:.3g}" for j in np.argsort(-far) if far[j] > 0]
        said += f" Rows {checks.shown(rows)} lie outside"
        if columns:
            said += f", beyond the simulated range of {', '.join(columns[:3])} standard deviations"
        else:
            said += ": within the range of every column, but not where the simulations are"
        if len(rows) >= _MANY * n:
            said += ". No posterior from them can be relied on: check units, columns and prior, or simulate wider"
        return said + "."

    def as_json(self) -> dict[str, Any]:
        """Convert to a JSON document of plain numbers and text."""
        return {
            "verdict": self.verdict,
            "explanation": self.explain(),
            "distance": self.distance.tolist(),
            "beyond": {name: self.beyond[:, j].tolist() for j, name in enumerate(self.columns)},
            "rows_outside": np.flatnonzero(self.outside).tolist(),
            "simulations": self.simulations,
            "source": self.source,
        }


def reach(
    x: Float[np.ndarray, "n d_x"],
    simulated: Float[np.ndarray, "m d_x"],
    names: Names = None,
    *,
    bounds: Float[np.ndarray, "2 d_x"] | None = None,
) -> Reach:
    """Compute the distance of each row of `x` from simulations. Call it as `method.check(x)`.

    Columns are standardised by median and median absolute deviation, with arcsinh for heavy tails. The distance of a
    row is that to the fifth nearest simulation; it is compared with the distances of simulations to their fifth nearest
    neighbours. If `bounds` (the smallest and largest simulated values) are given, `simulated` are draws of a surrogate.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.diagnostics import reach
        >>> simulated = np.random.default_rng(0).standard_normal((2000, 2))
        >>> reach(np.zeros((10, 2)), simulated).verdict
        'inside'
        >>> reach(np.full((10, 2), 60.0), simulated).verdict
        'outside all simulations'
    """
    x = checks.matrix(x, "x")
    simulated = checks.matrix(simulated, "simulated", width=x.shape[1])
    if len(simulated) < _FEWEST:
        raise InputError(f"There are {len(simulated)} simulations: at least {_FEWEST} are needed. Simulate more.")
    some = simulated[np.sort(np.random.default_rng(0).permutation(len(simulated))[:MOST])]
    centre = np.median(simulated, axis=0)
    spread = np.median(np.abs(simulated - centre), axis=0) / 0.6745
    spread = np.where(spread > 0, spread, np.maximum(simulated.std(axis=0), 1e-300))
    low, high = (simulated.min(axis=0), simulated.max(axis=0)) if bounds is None else bounds
    beyond = np.maximum(np.maximum(low - x, x - high), 0) / spread
    inside = np.arcsinh((some - centre) / spread)
    tree = KDTree(inside)
    own = tree.query(inside, _NEIGHBOURS + 1)[0][:, -1]
    limit = max(float(np.quantile(own, 1 - _TAIL)), 1e-12)
    with np.errstate(over="ignore"):
        distance = tree.query(np.arcsinh((x - centre) / spread), _NEIGHBOURS)[0][:, -1] / limit
    source = "simulations" if bounds is None else "surrogate"
    columns = column_labels(names, x.shape[1])
    return Reach(distance=distance, beyond=beyond, columns=columns, simulations=len(some), source=source)
