"""Robust location and scatter of the observations, or an error that says why they do not exist."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from nsmbayes._internal import checks
from nsmbayes._internal.random import seed_key
from nsmbayes.errors import InputError
from nsmbayes.scatter._consistency import support_size
from nsmbayes.scatter.batch import fit_batch, or_mad
from nsmbayes.scatter.location_scatter import ESTIMATORS, LocationScatter


def fit_location_scatter(x: Any, *, estimator: str = "mcd", seed: int = 0) -> LocationScatter:
    """Location and scatter of the rows of x.

    - "mcd": componentwise median and reweighted minimum covariance determinant, as defined by scikit-learn's
      `MinCovDet`. Just under half of the observations may be outliers.
    - "mad": componentwise median and squared median absolute deviations, a diagonal scatter. Equally robust, and
      defined for few observations, but it ignores correlation.
    - "sample": mean and sample covariance. NOT robust: one outlier can move it arbitrarily far. For ablations only.

    There is no silent fallback: data for which the chosen estimator does not exist raise an `InputError`.

    Args:
        x: observations, shape (n, d).
        estimator: "mcd", "mad" or "sample".
        seed: for the random starts of "mcd" in two or more dimensions.

    Example:
        >>> import numpy as np
        >>> from nsmbayes.scatter import fit_location_scatter
        >>> x = np.random.default_rng(0).normal(size=(100, 1))
        >>> x[:10] = -50.0
        >>> fitted = fit_location_scatter(x)
        >>> fitted.is_robust, bool(fitted.scatter[0, 0] < 1.5)
        (True, True)
    """
    checks.choice(estimator, "estimator", ESTIMATORS)
    x = checks.matrix(x, "x")
    key = seed_key(checks.integer(seed, "seed"))
    location, scatter, ok = fit_batch(x[None], estimator, key)
    if not ok[0]:
        raise InputError(_why_degenerate(x, estimator))
    return LocationScatter.from_scatter(location[0], scatter[0], estimator)


def fit_many(x: Sequence[Float[np.ndarray, "_ d"]], *, estimator: str = "mcd") -> list[LocationScatter | None]:
    """`fit_location_scatter` for many data sets, those of the same size at once; None where it would raise an error."""
    found: list[LocationScatter | None] = [None] * len(x)
    for n in {len(each) for each in x}:
        mine = [i for i, each in enumerate(x) if len(each) == n]
        try:
            location, scatter, ok = fit_batch(np.stack([x[i] for i in mine]), estimator, seed_key(0))
        except InputError:
            continue
        whole = LocationScatter.from_scatter(location, scatter, estimator)
        for place, i in enumerate(mine):
            if ok[place]:
                found[i] = jax.tree.map(lambda part, place=place: part[place], whole)
    return found


def _why_degenerate(x: Float[np.ndarray, "n d"], estimator: str) -> str:
    n, d = x.shape
    constant = np.flatnonzero((x == x[0]).all(axis=0))
    if constant.size:
        return f"`x` has a constant column: column {constant[0]} is {x[0, constant[0]]:g} everywhere. Drop it."
    enough = {"mcd": support_size(n, d), "mad": n // 2 + 1, "sample": n}[estimator]
    for column in range(d):
        values, counts = np.unique(x[:, column], return_counts=True)
        if counts.max() >= enough:
            return (
                f"`x` has too many ties: {counts.max()} of the {n} values in column {column} are "
                f"{values[counts.argmax()]:g}, so the {estimator!r} scatter is zero there. If the column is "
                "discrete, add uniform noise of one grid step; otherwise drop it."
            )
    with np.errstate(over="ignore"):
        offset = np.abs(x - np.median(x, axis=0))
    scale = np.partition(offset, enough - 1, axis=0)[enough - 1]
    extreme = np.flatnonzero((scale < 1e-150) | (scale > 1e150))
    if extreme.size:
        return (
            f"`x` spans {scale[extreme[0]]:g} in column {extreme[0]}, which is too small or too large to be "
            "squared. Change its units."
        )
    columns = np.flatnonzero(_dependent_columns(x[(offset <= 10 * scale).all(axis=1)] / scale))
    which = f" (columns {', '.join(map(str, columns))} are linearly dependent)" if columns.size else ""
    return (
        f"`x` has no regular {estimator!r} scatter: at least {enough} of the {n} rows lie on one "
        f"hyperplane{which}. Drop a redundant column, or add uniform noise of one grid step to discrete "
        f"columns{or_mad(x) if estimator == 'mcd' else ''}."
    )


def _dependent_columns(z: Float[np.ndarray, "m d"]) -> Bool[np.ndarray, " d"]:
    """The columns of a linear relation that all rows satisfy, if there is one."""
    _, sizes, directions = np.linalg.svd(z - z.mean(axis=0), full_matrices=False)
    return (np.abs(directions[-1]) > 0.1) & (sizes[-1] < 1e-6 * sizes[0])
