"""Outliers, or a wrong simulator? A test of the bulk of the data against posterior predictive draws.

Data and predictive draws are compared by weighted distribution functions F in several views: columns, pairs of columns
and the distance from the centre, each at 31 quantiles. An observation counts with its weight, and a draw with the
weight of an observation with the same value, so that the test compares the bulk. With r = F_data - F_model, divided by
its standard deviation at each point (Anderson and Darling 1954), the statistic is the mean of r^2 over points and
views.

The posterior was fitted to the data, so r is small along every direction in which parameters change F, and a comparison
with independent draws would have almost no power. These directions are found by regression on the parameters of the
predictive data sets, and projected out of r, both for the data and for every predictive data set. The remainder is what
no change of parameters explains, to first order. The null distribution of the statistic is that of predictive data sets
of the same size, each with its own location, scatter and weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes._internal.text import shorten
from nsmbayes.diagnostics.views import (
    GRID,
    LEVELS,
    Views,
    distributions,
    shared_distributions,
    weighted_quantiles,
)
from nsmbayes.errors import InputError
from nsmbayes.posteriors.base import LOW_WEIGHT, Posterior
from nsmbayes.posteriors.predictive import Source, column_labels
from nsmbayes.scatter import fit_location_scatter, mcd_batch
from nsmbayes.weights import Weight

LEVEL = 0.03
"""Significance level of the test of the bulk: approximately the rate of false alarms."""
MOST_ROWS = 500
"""Maximum number of rows in the comparison; a random subset if there are more."""
_REPLICATES = 199  # number of predictive data sets
_FEWEST = 20  # minimum number of rows in the bulk for the test
_NO_BULK = 1 / 3  # if this fraction of rows more than expected from the model has low weights, there is no bulk
_CROWD, _HALF = 0.02, 0.5  # fraction of excess rows that is not due to chance; excess rows have a smaller factor
_CHANCE = 0.95  # quantile of the number of low weights in predictive data sets
_STARTS, _ROWS_PER_COLUMN = 2, 5  # for the robust scatter of predictive data sets
_POOL = 4000  # number of predictive draws that represent the model
_RADII: np.ndarray = np.sinh(np.linspace(0, np.arcsinh(1e8), 8192))  # radii at which a weight is tabulated
_MEANINGFUL = 1e-6  # smaller directions of parameter changes, relative to the largest, are ignored


class _Incomparable(Exception):
    """Raised if the bulk cannot be compared with predictive draws; the message gives the reason."""


class Outcome(Enum):
    """The outcome of the test, in words."""

    CONSISTENT = "consistent"
    CONSISTENT_BUT = "consistent but for some rows"
    WRONG = "the bulk does not look like this simulator at any parameter"
    UNKNOWN = "not known"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether the bulk of the data is consistent with the simulator, and which rows do not belong to the bulk."""

    outcome: Outcome
    reason: str
    """The reason for the outcome, in one or two sentences."""
    p_value: float
    """Fraction of predictive data sets that fit no better than the data; NaN if there was no comparison."""
    rows: Int[np.ndarray, " k"]
    """The rows with a weight below 0.1; if these are not more than the model predicts, only the excess rows."""
    column_p_values: dict[str, float]
    """The p-value of each column alone."""
    off: tuple[str, ...]
    """The columns, or pairs of columns, in which the bulk differs from the model; empty if it does not."""
    source: str
    """Source of the predictive draws: "simulator" or "surrogate"."""

    def __str__(self) -> str:
        return self.explain()

    @property
    def verdict(self) -> str:
        """The outcome, in words."""
        if self.outcome is Outcome.CONSISTENT_BUT:
            return f"consistent but for {len(self.rows):,} row{'s' * (len(self.rows) > 1)}"
        return self.outcome.value

    def explain(self) -> str:
        """The outcome with its reason."""
        return f"{self.verdict[0].upper()}{self.verdict[1:]}. {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Convert to a JSON document of plain numbers and text."""
        return {
            "outcome": self.outcome.name.lower(),
            "verdict": self.verdict,
            "reason": self.reason,
            "p_value": None if np.isnan(self.p_value) else self.p_value,
            "rows": self.rows.tolist(),
            "column_p_values": self.column_p_values,
            "off": list(self.off),
            "source": self.source,
        }


@double_precision
def judge(posterior: Posterior, simulator: Any = None, *, seed: int = 0) -> Verdict:
    """Outliers, or a wrong simulator? Call it as `posterior.verdict(simulator)`.

    By default the surrogate replaces the simulator, and its errors count as errors of the simulator. A `simulator` is
    called about 200 times for each row, at most 100,000 times in total.

    Example:
        >>> import numpy as np
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gaussian")
        >>> method = nsm.NSMBayes(task.prior, surrogate=nsm.MDN(hidden=(32,)), calibration=None)
        >>> settings = nsm.TrainingSettings(max_epochs=5)
        >>> _ = method.append_simulations(*task.simulate(20_000, seed=0)).train(settings=settings, progress=False)
        >>> posterior = method.build_posterior(task.observe(100, seed=1).x)
        >>> posterior.verdict(task).verdict
        'consistent but for 10 rows'
    """
    seed = checks.integer(seed, "seed")
    weights = posterior.weights
    low = np.flatnonzero(weights < LOW_WEIGHT)
    source = Source.of(posterior, simulator)
    if posterior.n >= _FEWEST and len(low) > posterior.n / 2:
        why = f"{len(low):,} of {posterior.n:,} rows have a weight below {LOW_WEIGHT}: there is no bulk to compare."
        return _unasked(Outcome.WRONG, low, source, why)
    try:
        found = _compared(posterior, source, weights, seed)
    except _Incomparable as error:
        return _unasked(Outcome.UNKNOWN, low, source, str(error))
    expected = float(np.quantile(found.low, _CHANCE))
    factor = posterior.factor_by_number()
    crowd = low[:0] if factor is None else low[factor.values[low] < _HALF]  # rare in predictive data sets
    beyond = len(low) / posterior.n - found.low.mean()
    outcome, reason, off = Outcome.CONSISTENT, found.describe(), ()
    if found.p_value <= LEVEL:
        outcome, off = Outcome.WRONG, found.off()
        reason = f"{found.worst()} {reason}"
    if beyond > _NO_BULK:
        outcome = Outcome.WRONG
        reason = (
            f"{len(low):,} of {posterior.n:,} rows have a weight below {LOW_WEIGHT}, and {found.low.mean():.0%} would "
            f"if the simulator were right: so many are not outliers. {reason}"
        )
    elif outcome is Outcome.CONSISTENT and len(low) / posterior.n > expected:
        outcome = Outcome.CONSISTENT_BUT
    elif outcome is Outcome.CONSISTENT and len(crowd) > _CROWD * posterior.n:
        outcome, low = Outcome.CONSISTENT_BUT, crowd
        reason += " There are more rows like these than the model explains."
    if outcome is Outcome.CONSISTENT and len(low):
        reason += f" {len(low):,} rows have a weight below {LOW_WEIGHT}: no more than the model itself predicts."
    return Verdict(
        outcome=outcome,
        reason=reason,
        p_value=found.p_value,
        rows=low,
        column_p_values=dict(zip(found.names, found.view_p_values[: len(found.names)].tolist(), strict=True)),
        off=off,
        source=source.name,
    )


def _unasked(outcome: Outcome, low: np.ndarray, source: Source, why: str) -> Verdict:
    """The verdict without a comparison."""
    nothing: dict[str, Any] = {"p_value": float("nan"), "column_p_values": {}, "off": ()}
    return Verdict(outcome=outcome, reason=why, rows=low, source=source.name, **nothing)


class _Compared(NamedTuple):
    """Comparison of the bulk with predictive data sets."""

    p_value: float
    view_p_values: Float[np.ndarray, " views"]
    sizes: Float[np.ndarray, " views"]
    """The mean square of `left`, relative to that of predictive data sets."""
    low: Float[np.ndarray, " b"]
    """The fraction of low weights in each predictive data set."""
    views: Views
    names: tuple[str, ...]
    places: Float[np.ndarray, "views grid"]
    observed: Float[np.ndarray, "views grid"]
    """The distribution of the data in each view."""
    left: Float[np.ndarray, "views grid"]
    """Difference from the model that no parameter explains, in standard deviations of one observation."""
    source: str

    def describe(self) -> str:
        says = f"p = {self.p_value:.2g}" if self.p_value > 1.5 / _REPLICATES else f"p < {2 / _REPLICATES:.1g}"
        return f"Bulk against draws of the {self.source}: {says}."

    def off(self) -> tuple[str, ...]:
        """The columns that differ most from the model, or the pairs if a pair differs most, or all columns together."""
        order = np.argsort(-self.sizes, kind="stable")
        kind = len(self.views.columns[order[0]])
        if kind == len(self.names) > 2:
            return ("all columns together",)
        found = [v for v in order if self.sizes[v] >= self.sizes[order[0]] / 2]
        same = [self.views.columns[v] for v in found if len(self.views.columns[v]) == kind]
        return tuple(dict.fromkeys(map(self._named, same)))

    def _named(self, columns: tuple[int, ...]) -> str:
        return " and ".join(shorten(self.names[j]) for j in columns)

    def worst(self) -> str:
        """Describe the largest difference from the model, with numbers for a column; only names for pairs."""
        j = int(self.sizes.argmax())
        if j >= len(self.names):
            return f"Off: {', '.join(self.off())}."
        at = int(np.abs(self.left[j]).argmax())
        below = self.observed[j, at]
        model = np.clip(below - self.left[j, at] * np.sqrt(LEVELS[at] * (1 - LEVELS[at])), 0, 1)
        scale = 1 / self.views.directions[j, j]
        place = self.views.location[j] + scale * self.places[j, at]
        return (
            f"Off: {', '.join(self.off())}. Of the bulk, {below:.0%} have {shorten(self.names[j])} below {place:.4g}; "
            f"the best parameters give {model:.0%}."
        )


def _compared(posterior: Posterior, source: Source, weights: Float[np.ndarray, " n"], seed: int) -> _Compared:
    x = posterior.x if source.name == "simulator" else posterior.noisy_x
    rng = np.random.default_rng([seed, 3])
    some = np.sort(rng.permutation(len(x))[:MOST_ROWS])
    x, weights, d = x[some], weights[some], x.shape[1]
    if weights.sum() < _FEWEST:
        raise _Incomparable(f"The weights sum to {weights.sum():.0f} rows: too few to be compared with a simulator.")
    location, scatter, weight = _frame(posterior)
    views, radial = Views.of(location, scatter), _tabulated(weight)
    theta = posterior.sample((_REPLICATES,), seed=seed)
    # number of rows of the bulk: that of the data, if the weights of simulated rows are as large
    first = source.draw(theta, _POOL // _REPLICATES, seed)
    share = radial(views.distance(first)).mean()
    rows = int(min(len(x), max(_FEWEST, round(weights.sum() / max(share, 1e-3)))))
    sets = source.draw(theta, rows, seed + 1)
    if not np.isfinite(sets).all():
        raise _Incomparable("Predictive draws are not finite: the surrogate is not valid where the posterior lies.")
    pool = sets.reshape(-1, d)[rng.permutation(sets.shape[0] * rows)[:_POOL]]
    own, of_pool = _refitted(sets, pool, (location, scatter), radial, seed)
    weights_pool, scores = radial(views.distance(pool)), np.sqrt(LEVELS * (1 - LEVELS))
    places, observed, left = (np.empty((len(views), GRID)) for _ in range(3))
    null = np.empty((len(sets), len(views), GRID))
    for v in range(len(views)):
        z = views.at(v, pool)
        places[v] = weighted_quantiles(z, weights_pool)
        [observed[v]] = distributions(views.at(v, x)[None], weights[None], places[v])
        [model] = shared_distributions(z, weights_pool[None], places[v])
        left[v] = (observed[v] - model) / scores
        models = shared_distributions(z, of_pool, places[v])
        null[:, v] = (distributions(views.at(v, sets), own, places[v]) - models) / scores
    left, null = _without_parameters(left, null, theta)
    sizes, null_sizes = (left**2).mean(axis=1), (null**2).mean(axis=2)
    usual = np.maximum(null_sizes.mean(axis=0), 1e-300)
    each = (1 + (null_sizes >= sizes).sum(axis=0)) / (1 + len(sets))
    total = (1 + ((null_sizes / usual).mean(axis=1) >= (sizes / usual).mean()).sum()) / (1 + len(sets))
    names = column_labels(posterior.x_names, d)
    low = (own < LOW_WEIGHT).mean(axis=1)
    return _Compared(float(total), each, sizes / usual, low, views, names, places, observed, left, source.name)


def _frame(posterior: Posterior) -> tuple[np.ndarray, np.ndarray, Weight | None]:
    """Location, scatter and weight of the data; location and scatter are refitted if all rows have the same weight."""
    weighting = posterior.weighting
    if weighting is not None and weighting.weight.decays:
        centre = weighting.centre
        return np.asarray(centre.location), np.asarray(centre.scatter), weighting.weight
    try:
        centre = fit_location_scatter(posterior.noisy_x)
    except InputError as error:
        raise _Incomparable(f"The rows have no robust scatter. {error}") from error
    return np.asarray(centre.location), np.asarray(centre.scatter), None


def _tabulated(weight: Weight | None) -> Callable[[np.ndarray], np.ndarray]:
    """Tabulate a weight, as a function of distances of any shape, without a compilation for each shape."""
    if weight is None:
        return np.ones_like
    values = np.sqrt(np.asarray(jax.vmap(weight.squared)(jnp.asarray(_RADII))[0]))
    return lambda r: np.interp(r, _RADII, values)


def _refitted(
    sets: Float[np.ndarray, "b n d"],
    pool: Float[np.ndarray, "m d"],
    start: tuple[np.ndarray, np.ndarray],
    radial: Callable[[np.ndarray], np.ndarray],
    seed: int,
) -> tuple[Float[np.ndarray, "b n"], Float[np.ndarray, "b m"]]:
    """Weights of predictive data sets, each with its own location and scatter, and weights of `pool` for each of them.

    Data sets that are too small, or tied, use the location and scatter of the data.
    """
    b, n, d = sets.shape
    locations, scatters = np.tile(start[0], (b, 1)), np.tile(start[1], (b, 1, 1))
    if n >= _ROWS_PER_COLUMN * (d + 1):
        fitted, spread, regular = mcd_batch(sets, seed_key(seed), starts=_STARTS, warm_start=start)
        locations = np.where(regular[:, None], fitted, locations)
        scatters = np.where(regular[:, None, None], spread, scatters)
    factors = np.linalg.inv(np.linalg.cholesky(scatters))
    offsets = np.einsum("bij,bj->bi", factors, locations)[:, None]

    def weigh(whitened: Float[np.ndarray, "b k d"]) -> Float[np.ndarray, "b k"]:
        return radial(np.sqrt(((whitened - offsets) ** 2).sum(axis=2)))

    return weigh(sets @ factors.swapaxes(1, 2)), weigh(pool @ factors.swapaxes(1, 2))


def _without_parameters(
    left: Float[np.ndarray, "views grid"], null: Float[np.ndarray, "b views grid"], theta: Float[np.ndarray, "b d"]
) -> tuple[Float[np.ndarray, "views grid"], Float[np.ndarray, "b views grid"]]:
    """Project out the effect of parameter changes from differences, by regression over predictive data sets."""
    spread = np.maximum(theta.std(axis=0), 1e-300)
    design = np.column_stack([np.ones(len(theta)), (theta - theta.mean(axis=0)) / spread])
    flat = null.reshape(len(null), -1)
    slopes = np.linalg.lstsq(design, flat, rcond=None)[0][1:]
    _, sizes, directions = np.linalg.svd(slopes, full_matrices=False)
    moved = directions[sizes > _MEANINGFUL * max(sizes.max(), 1e-300)]

    def project(a: np.ndarray) -> np.ndarray:
        return a - (a @ moved.T) @ moved

    return project(left.reshape(1, -1)).reshape(left.shape), project(flat).reshape(null.shape)
