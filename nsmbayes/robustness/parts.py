"""Checks and notes for the certificates of all posteriors: weight, location and scatter."""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from nsmbayes.posteriors import Posterior
from nsmbayes.robustness.bounds.weights import WeightBounds
from nsmbayes.robustness.certificate import Check
from nsmbayes.scatter import LocationScatter
from nsmbayes.weights import Weight

_FAR = 5.0  # far observations are beyond this number of robust standard deviations from the bulk
_BREAKING = 0.45  # if one value takes this fraction of a column, the scatter is close to its breakdown point
_MANY = 0.35  # above this fraction of far observations, a note warns that the scatter may break down


def check_weight(weight: Weight, bounds: WeightBounds | None) -> Check:
    """Assumption A1: the weight and its gradient are bounded."""
    if bounds is None:
        return Check(False, f"{type(weight).__name__} is not a weight of this package, and nothing is known about it")
    return Check(True, f"w is at most 1 and |dw/dr| at most {bounds.slope_over_weight / 2:.4g}")


def check_scatter(centre: LocationScatter, x: Float[np.ndarray, "n d_x"], *, regular: bool) -> Check:
    """Check that the location and scatter of `x` are robust, and that the scatter is regular."""
    if not centre.is_robust:
        why = f"the {centre.estimator!r} location and scatter follow a single outlier, and the weight with them"
        return Check(False, why)
    if not regular:
        return Check(False, "the scatter is singular or not finite, so that no distance can be measured by it")
    for column, values in enumerate(x.T):
        counts = np.unique(values, return_counts=True)[1]
        if counts.max() >= _BREAKING * len(x):
            return Check(
                False,
                f"{counts.max()} of the {len(x)} values of column {column} are the same, so that the scatter is about "
                "to break down: with a few more it would be zero, and already one may change it many times over. Give "
                "grid_steps if the column is discrete, or look for a stuck sensor",
            )
    return Check(True, f"the {centre.estimator!r} estimates stay bounded while fewer than half the rows are outliers")


def all_finite(model: eqx.Module) -> bool:
    """Whether a model has no NaN and no infinite weights."""
    return all(np.isfinite(leaf).all() for leaf in map(np.asarray, jax.tree.leaves(eqx.filter(model, eqx.is_array))))


def notes(centre: LocationScatter, posterior: Posterior) -> tuple[str, ...]:
    """Notes about what a certificate for these data does not cover."""
    said = (
        "This is a theorem about the posterior with its weight and learning rate kept fixed. The "
        f"{centre.estimator} location and scatter behind the weight are estimated from the same data: one more outlier "
        "moves them by a bounded amount, and another certificate then holds. Inliers from another distribution, and "
        "models that are wrong in the bulk of the data, are not covered.",
    )
    check = posterior.surrogate_check
    if check is not None and check.corrected:
        said += ("The correction of the loss for the surrogate's error is also kept fixed.",)
    x = posterior.x
    with np.errstate(over="ignore"):  # an observation of 1e300 is far
        away = np.linalg.solve(np.asarray(centre.factor), (x - np.asarray(centre.location)).T)
        distances = np.linalg.norm(away, axis=0)
    far = float((distances > _FAR).mean())
    if far > _MANY:
        said += (
            f"{far:.0%} of the observations lie more than {_FAR:g} robust standard deviations from the bulk. Beyond "
            "50 % outliers no location and scatter can tell which half is the bulk: make sure it is the right one.",
        )
    if posterior.suspects is not None:
        said += (
            "The factors by number (excess) stay as they are, too, and so does the radius of the weight. Fitted again "
            "with another row they change; what that does to the posterior is argued on docs/excess.md, not proved.",
        )
    return said
