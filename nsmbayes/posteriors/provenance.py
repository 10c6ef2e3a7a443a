"""The origin of a posterior."""

from collections.abc import Callable
from typing import Any, NamedTuple

from nsmbayes._internal.columns import Names


class Provenance(NamedTuple):
    """The origin of a posterior: method, names, training, and functions to certify and judge it."""

    method: str
    """The method's name on the command line."""
    label: str
    """The method's name in text for readers."""
    parameter_names: tuple[str, ...]
    certify: Callable[[Any], Any]
    """Certifies the robustness of a posterior: `nsmbayes.robustness.certify`."""
    x_names: Names = None
    """Names of the columns of x, or None."""
    interrupted: bool = False
    """Whether the training of the network was interrupted."""
    dropped: float = 0.0
    """The fraction of the simulations that failed and were dropped before training."""
    judge: Callable[..., Any] | None = None
    """Compares the bulk of the data with the simulator: `nsmbayes.diagnostics.judge`; None if not available."""
