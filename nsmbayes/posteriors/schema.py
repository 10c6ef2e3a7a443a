"""Schema of a saved posterior: checked before its arrays are read, and before anything is built from them."""

from typing import Any

import numpy as np

from nsmbayes._internal import checks
from nsmbayes._internal.columns import check_names
from nsmbayes.calibration import CalibrationResult, CalibrationStatus
from nsmbayes.errors import InputError
from nsmbayes.serialisation import MOST_COLUMNS, Shapes, check_fields, require_array

_FOREIGN = "The posterior was not written by nsmbayes, or is damaged."
_REQUIRED = {
    "draws": "chains draws d",
    "x": "n d_x",
    "mean": "d",
    "covariance": "d d",
    "weights": "n",
}
_OPTIONAL = {
    "prior.mean": "d",
    "prior.covariance": "d d",
    "prior.draws": "prior_draws d",
    "location": "d_x",
    "scatter": "d_x d_x",
    "suspects.values": "n",
    "suspects.found": "n",
    "suspects.expected": "n",
    "suspects.column": "n",
    "suspects.beyond": "n",
    "suspects.kept": "n",
    "influence.kl": "n",
    "influence.reliable": "n",
    "result.acceptance_rate": "chains",
    "result.divergences": "chains",
    "result.r_hat": "d",
    "result.ess_bulk": "d",
    "result.ess_tail": "d",
    "calibration.betas": "tried",
    "calibration.coverages": "tried",
    "calibration.minimiser": "d",
    "surrogate_check": "facts",
}
_LATER = ("suspects.beyond", "suspects.kept")  # not in the files of earlier versions
_TOGETHER = (
    ("location", "scatter"),
    *(
        tuple(name for name in _OPTIONAL if name.startswith(group) and name not in _LATER)
        for group in ("suspects.", "influence.", "result.")
    ),
)  # each group must be complete or absent
_KINDS = {"influence.reliable": "b", "result.divergences": "iu", "suspects.column": "iu"}  # all others are floats
MAY_BE_UNKNOWN = (  # arrays that may have NaN: missing cells of x, and diagnostics
    "x",
    "influence.kl",
    "result.r_hat",
    "result.ess_bulk",
    "result.ess_tail",
    "calibration.coverages",
)
_LARGEST = 1e150  # squares of larger numbers would overflow
_HEADER = {
    "posterior": str,
    "label": str,
    "parameter_names": list,
    "x_names": list | None,
    "beta": int | float,
    "gaussian": bool,
    "note": str | None,
    "warnings": list | None,
    "dropped": int | float,
    "calibration": dict | None,
    "certificate": dict,
}


def check_shapes(header: dict[str, Any], shapes: Shapes) -> None:
    """Raise `InputError` if names or shapes of arrays do not form one posterior; files of methods are not checked."""
    if "posterior" not in header:
        return
    sizes: dict[str, int] = {}
    for name, dimensions in (_REQUIRED | _OPTIONAL).items():
        if name not in shapes:
            if name in _REQUIRED:
                raise InputError(f"The saved posterior lacks the array {name!r}. {_FOREIGN}")
            continue
        expected = dimensions.split()
        if len(expected) != len(shapes[name]) or any(
            sizes.setdefault(dimension, size) != size for dimension, size in zip(expected, shapes[name], strict=True)
        ):
            raise InputError(
                f"The saved array {name!r} must have shape ({', '.join(expected)}), with "
                f"{', '.join(f'{key} = {size}' for key, size in sizes.items())}; found {shapes[name]}. {_FOREIGN}"
            )
    if ("prior.draws" in shapes) == ("prior.mean" in shapes) or ("prior.mean" in shapes) != (
        "prior.covariance" in shapes
    ):
        raise InputError(f"The saved posterior must have the moments of its prior, or draws of it. {_FOREIGN}")
    for group in _TOGETHER:
        if lost := [name for name in group if name not in shapes][: len(set(group) & set(shapes))]:
            raise InputError(f"The saved posterior lacks the array {lost[0]!r}. {_FOREIGN}")
    if unknown := sorted(set(shapes) - set(_REQUIRED | _OPTIONAL)):
        raise InputError(f"The saved posterior has an array {unknown[0]!r:.60} that this version does not know.")
    if (
        not all(sizes[name] > 0 for name in ("chains", "draws", "n"))
        or sizes.get("prior_draws", 2) < 2
        or not all(0 < sizes[name] <= MOST_COLUMNS for name in ("d", "d_x"))
    ):
        raise InputError(f"A saved posterior must have 1 to {MOST_COLUMNS} columns and parameters; found {sizes}.")


def check_header(header: dict[str, Any], d: int, d_x: int) -> None:
    """Raise `InputError` if entries of the header are missing, of a wrong type, or do not fit d and d_x."""
    for name, kind in _HEADER.items():
        if name not in header:
            raise InputError(f"The saved posterior lacks {name!r}: it was not written by nsmbayes.")
        if not isinstance(header[name], kind):
            raise InputError(f"{name!r} of the saved posterior is a {type(header[name]).__name__}. {_FOREIGN}")
    checks.fraction(header["dropped"], "dropped")
    if not all(isinstance(warning, str) for warning in header["warnings"] or ()):
        raise InputError(f"'warnings' of the saved posterior must be sentences. {_FOREIGN}")
    check_names(header["parameter_names"], "parameter_names", d)
    if header["x_names"] is not None:
        check_names(header["x_names"], "x_names", d_x)
    checks.positive(header["beta"], "beta")


def check_values(arrays: dict[str, np.ndarray]) -> None:
    """Raise `InputError` if arrays have values that are impossible for a posterior."""
    for name, array in arrays.items():
        if array.dtype.kind not in _KINDS.get(name, "f"):
            raise InputError(f"The saved array {name!r} must not hold {array.dtype}. {_FOREIGN}")
        if name not in MAY_BE_UNKNOWN:
            require_array(arrays, name)
    if np.isinf(arrays["x"]).any():
        raise InputError(f"The saved array 'x' has infinite values. {_FOREIGN}")
    weights, variances = arrays["weights"], np.diag(arrays["covariance"])
    if (weights < 0).any() or (weights > 1 + 1e-9).any() or (variances <= 0).any():
        raise InputError(f"The saved weights must lie in [0, 1] and variances be positive. {_FOREIGN}")
    sized = (arrays[name] for name in ("draws", "mean", "covariance", "prior.draws") if name in arrays)
    if any(float(np.abs(array).max()) > _LARGEST for array in sized):
        raise InputError(f"The saved draws and moments must be at most {_LARGEST:g} in size. {_FOREIGN}")
    if "suspects.column" in arrays and not (arrays["suspects.column"] < arrays["x"].shape[1]).all():
        raise InputError(f"The saved array 'suspects.column' must name columns of x. {_FOREIGN}")


def read_calibration(document: dict[str, Any] | None, arrays: dict[str, np.ndarray]) -> CalibrationResult | None:
    """Read the saved result of the calibration; None if there is none."""
    if document is None:
        return None
    check_fields(document, CalibrationResult, "the calibration of a saved posterior")
    status = checks.choice(document.get("status"), "status", tuple(CalibrationStatus.__members__))
    for name, kind in {"method": str, "sequential": bool}.items():
        if not isinstance(document.get(name), kind):
            raise InputError(f"{name!r} of the saved calibration must be a {kind.__name__}. {_FOREIGN}")
    checks.positive(document.get("beta"), "beta")
    checks.fraction(document.get("target"), "target")
    for name in ("bootstraps", "degenerate"):
        checks.integer(document.get(name), name)
    found: dict[str, Any] = {}
    for name in ("betas", "coverages"):
        if f"calibration.{name}" not in arrays:
            raise InputError(f"The saved posterior lacks the array 'calibration.{name}'. {_FOREIGN}")
        found[name] = arrays[f"calibration.{name}"]
    found |= {"minimiser": arrays.get("calibration.minimiser"), "status": CalibrationStatus[status]}
    return CalibrationResult(**(document | found))
