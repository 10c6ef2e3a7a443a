"""Experiments: specification (`spec`, `catalogue`), execution (`runner`), results (`results`, `store`), and tables and
figures (`render`)."""

from nsmbayes.errors import FailedRepeatsError
from nsmbayes.experiments.method_cache import Effort
from nsmbayes.experiments.outliers import place_outliers
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import Row, Trace
from nsmbayes.experiments.runner import run
from nsmbayes.experiments.spec import DataSpec, Experiment, MethodSpec
from nsmbayes.experiments.store import Store, StoredRepeat

__all__ = [
    "Experiment",
    "DataSpec",
    "MethodSpec",
    "run",
    "Effort",
    "FailedRepeatsError",
    "Store",
    "StoredRepeat",
    "ExperimentResult",
    "Row",
    "Trace",
    "place_outliers",
]
