"""Where a posterior comes from."""

from collections.abc import Callable
from typing import Any, NamedTuple

from nsmbayes._internal.columns import Names


class Provenance(NamedTuple):
    """Where a posterior comes from."""

    method: str
    """The method's name on the command line."""
    label: str
    """The method's name for readers."""
    parameter_names: tuple[str, ...]
    certify: Callable[[Any], Any]
    """Proves what can be proved about the robustness of a posterior: `nsmbayes.robustness.certify`."""
    x_names: Names = None
    """The columns of x by name, where they have names."""
    interrupted: bool = False
    """Whether the training of its network was interrupted."""
    dropped: float = 0.0
    """The fraction of the simulations that failed and were dropped before training."""
    judge: Callable[..., Any] | None = None
    """Compares the bulk of the data with the simulator: `nsmbayes.diagnostics.judge`; None if that cannot be asked."""
