"""The prior of a saved method: Gaussian priors as arrays, known others as JSON; the rest must be passed at load."""

from typing import Any

import numpy as np

from nsmbayes.errors import InputError
from nsmbayes.priors import GaussianPrior, IndependentPrior, as_gaussian, as_prior, prior_from_json, prior_to_json
from nsmbayes.serialisation import require_array

_UNKNOWN = "kept_by_the_user"


def prior_to_save(prior: Any) -> tuple[dict[str, Any] | None, dict[str, np.ndarray]]:
    """Return the entry for the prior in the header of a saved method, and the arrays of the prior."""
    if not isinstance(prior, IndependentPrior):
        try:
            gaussian = as_gaussian(prior)
            return None, {"prior.mean": gaussian.mean, "prior.covariance": gaussian.covariance}
        except InputError:
            pass
    return prior_to_json(prior) or {_UNKNOWN: type(prior).__name__}, {}


def saved_prior(document: Any, arrays: dict[str, np.ndarray], given: Any) -> Any:
    """Return the prior of a saved method: `given`, or the saved prior if that is None."""
    if given is not None:
        return as_prior(given)
    if document is None:
        mean = require_array(arrays, "prior.mean", (None,))
        return GaussianPrior(mean, require_array(arrays, "prior.covariance", (len(mean), len(mean))))
    if isinstance(document, dict) and _UNKNOWN in document:
        raise InputError(
            f"The prior of this model is a {document[_UNKNOWN]!r:.60}, which has no form on disk. Build it again and "
            "pass it: nsmbayes.load(path, prior=prior)."
        )
    return prior_from_json(document)[0]
