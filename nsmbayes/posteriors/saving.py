"""Saving of posteriors: draws, moments, weights and certificate, without the network."""

import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nsmbayes.errors import InputError
from nsmbayes.priors import GaussianPrior
from nsmbayes.samplers import Draws
from nsmbayes.serialisation import write_model

RESULT_FIELDS = ("acceptance_rate", "divergences", "r_hat", "ess_bulk", "ess_tail")
"""Fields of a sampler's result that are saved with the draws."""
_GAUSSIAN_DRAWS = (4, 2500)  # chains and draws that are saved for a posterior in closed form


def save_posterior(posterior: Any, path: str | Path, *, overwrite: bool) -> Path:
    """Write the files that `nsmbayes.posteriors.load_posterior` reads; `posterior` is any Posterior."""
    result: Draws | None = getattr(posterior, "result", None)
    calibration = posterior.calibration
    try:
        influence = posterior.leave_one_out()
    except InputError:
        influence = None
    arrays = {
        "draws": posterior.chains(*reversed(_GAUSSIAN_DRAWS), seed=0),
        "x": posterior.x,
        "mean": posterior.mean,
        "covariance": posterior.covariance,
        "weights": posterior.weights,
    }
    if isinstance(posterior.prior, GaussianPrior):
        arrays |= {"prior.mean": posterior.prior.mean, "prior.covariance": posterior.prior.covariance}
    else:
        arrays["prior.draws"] = posterior.prior.draws
    with contextlib.suppress(InputError):  # tied data have no location and scatter
        arrays |= dict(zip(("location", "scatter"), posterior.location_scatter, strict=True))
    if posterior.suspects is not None:
        arrays |= {f"suspects.{name}": array for name, array in posterior.suspects.factor._asdict().items()}
    if influence is not None:
        arrays |= {"influence.kl": influence.kl, "influence.reliable": influence.reliable}
    if result is not None:
        arrays |= {f"result.{name}": np.asarray(getattr(result, name)) for name in RESULT_FIELDS}
    if calibration is not None:
        named = {name: getattr(calibration, name) for name in ("betas", "coverages", "minimiser")}
        arrays |= {f"calibration.{name}": array for name, array in named.items() if array is not None}
    if posterior.surrogate_check is not None:
        arrays["surrogate_check"] = posterior.surrogate_check.as_numbers()
    header = {
        "posterior": posterior.method,
        "label": posterior.label,
        "parameter_names": list(posterior.parameter_names),
        "x_names": None if posterior.x_names is None else list(posterior.x_names),
        "beta": posterior.beta,
        "gaussian": posterior.normalised,
        "note": None if result is None else result.note,
        "calibration": None if calibration is None else _plain(asdict(calibration)),
        "certificate": posterior.certificate.as_json(),
        "warnings": list(posterior.warnings),
        "dropped": posterior.provenance.dropped,
    }
    return write_model(path, header, {k: np.asarray(v) for k, v in arrays.items()}, overwrite=overwrite)


def _plain(calibration: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in calibration.items() if not isinstance(value, np.ndarray)}
    return kept | {"minimiser": None, "status": calibration["status"].name}
