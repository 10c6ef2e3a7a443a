"""nsmbayes: amortised, provably robust simulation-based inference.

The package exports the names that a first script needs and imports them on first use. Everything else is in its
module: `nsmbayes.weights.IMQ`, `nsmbayes.calibration.RootCalibration`, `nsmbayes.metrics.mmd2`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsmbayes.diagnostics import metrics as metrics
    from nsmbayes.errors import BudgetError as BudgetError
    from nsmbayes.errors import ConvergenceError as ConvergenceError
    from nsmbayes.errors import InputError as InputError
    from nsmbayes.errors import NotTrainedError as NotTrainedError
    from nsmbayes.errors import SimulationError as SimulationError
    from nsmbayes.errors import TrainingError as TrainingError
    from nsmbayes.interop import from_sbi as from_sbi
    from nsmbayes.methods import ACE as ACE
    from nsmbayes.methods import GBISR as GBISR
    from nsmbayes.methods import NLE as NLE
    from nsmbayes.methods import NPE as NPE
    from nsmbayes.methods import NPERS as NPERS
    from nsmbayes.methods import NPLMMD as NPLMMD
    from nsmbayes.methods import RSNLE as RSNLE
    from nsmbayes.methods import NSMBayes as NSMBayes
    from nsmbayes.methods import NSMBayesAmortised as NSMBayesAmortised
    from nsmbayes.methods import NSMBayesConj as NSMBayesConj
    from nsmbayes.methods import load as load
    from nsmbayes.priors import GaussianPrior as GaussianPrior
    from nsmbayes.priors import IndependentPrior as IndependentPrior
    from nsmbayes.robustness import certify as certify
    from nsmbayes.simulators import BatchSimulator as BatchSimulator
    from nsmbayes.simulators import CommandSimulator as CommandSimulator
    from nsmbayes.simulators import JaxSimulator as JaxSimulator
    from nsmbayes.simulators import NumpySimulator as NumpySimulator
    from nsmbayes.simulators import simulate_sets as simulate_sets
    from nsmbayes.simulators.campaigns import Campaign as Campaign
    from nsmbayes.simulators.campaigns import merge_campaigns as merge_campaigns
    from nsmbayes.simulators.campaigns import simulate as simulate
    from nsmbayes.surrogates import MAF as MAF
    from nsmbayes.surrogates import MDN as MDN
    from nsmbayes.training import TrainingSettings as TrainingSettings

    from . import calibration as calibration
    from . import diagnostics as diagnostics
    from . import interop as interop
    from . import losses as losses
    from . import plotting as plotting
    from . import posteriors as posteriors
    from . import report as report
    from . import robustness as robustness
    from . import samplers as samplers
    from . import scatter as scatter
    from . import surrogates as surrogates
    from . import tasks as tasks
    from . import weights as weights

__version__ = "0.1.0"

_NAMES = {
    "errors": ("InputError", "NotTrainedError", "TrainingError", "ConvergenceError", "BudgetError", "SimulationError"),
    "priors": ("GaussianPrior", "IndependentPrior"),
    "simulators": ("JaxSimulator", "NumpySimulator", "BatchSimulator", "CommandSimulator", "simulate_sets"),
    "simulators.campaigns": ("simulate", "Campaign", "merge_campaigns"),
    "surrogates": ("MDN", "MAF"),
    "training": ("TrainingSettings",),
    "robustness": ("certify",),
    "methods": (
        "NSMBayes",
        "NSMBayesAmortised",
        "NSMBayesConj",
        "NLE",
        "NPE",
        "NPERS",
        "NPLMMD",
        "ACE",
        "GBISR",
        "RSNLE",
        "load",
    ),
    "diagnostics": ("metrics",),
    "interop": ("from_sbi",),
}
_MODULES = (
    "tasks",
    "surrogates",
    "scatter",
    "weights",
    "losses",
    "samplers",
    "calibration",
    "posteriors",
    "robustness",
    "diagnostics",
    "interop",
    "plotting",
    "report",
)
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_HOMES, *_MODULES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name in _HOMES:
        value = getattr(importlib.import_module(f"nsmbayes.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = importlib.import_module(f"nsmbayes.{name}")
    else:
        raise AttributeError(f"module 'nsmbayes' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Sorted list of the public names."""
    return sorted(__all__)
