"""Inference methods: each builds a posterior from simulations and observations."""

from pathlib import Path
from typing import Any

from nsmbayes.errors import InputError
from nsmbayes.methods.base import Method as Method
from nsmbayes.methods.base import TrainedMethod as TrainedMethod
from nsmbayes.methods.baselines import ACE as ACE
from nsmbayes.methods.baselines import GBISR as GBISR
from nsmbayes.methods.baselines import NPE as NPE
from nsmbayes.methods.baselines import NPERS as NPERS
from nsmbayes.methods.baselines import NPLMMD as NPLMMD
from nsmbayes.methods.baselines import RSNLE as RSNLE
from nsmbayes.methods.nle import NLE as NLE
from nsmbayes.methods.nsm_bayes import NSMBayes as NSMBayes
from nsmbayes.methods.nsm_bayes_amortised import NSMBayesAmortised as NSMBayesAmortised
from nsmbayes.methods.nsm_bayes_conj import NSMBayesConj as NSMBayesConj
from nsmbayes.methods.surrogate import SurrogateMethod as SurrogateMethod
from nsmbayes.posteriors import KeptStatistics, check_shapes, load_posterior
from nsmbayes.robustness import Certificate
from nsmbayes.serialisation import read_model

METHODS: dict[str, type[Any]] = {
    method.name: method
    for method in (NLE, NSMBayes, NSMBayesAmortised, NSMBayesConj, NPE, NPERS, NPLMMD, ACE, GBISR, RSNLE)
}


def load(path: str | Path, *, prior: Any = None) -> Any:
    """Load a trained method, a posterior, or the statistics of a data set from the folder that `save` wrote.

    `prior` replaces the saved prior of a method. It is required if the prior could not be saved.

    Example:
        >>> import nsmbayes as nsm
        >>> nsm.load("no-such-folder")
        Traceback (most recent call last):
        nsmbayes.errors.InputError: `path` no-such-folder is not a model folder: ...
    """
    header, arrays = read_model(path, check_shapes)
    if prior is not None and "method" not in header:
        raise InputError(f"`prior` must be left out: `path` {path} holds no method.")
    if "posterior" in header:
        return load_posterior(header, arrays, Certificate.from_json)
    if "statistics" in header:
        return KeptStatistics.from_saved(header, arrays)
    name = header.get("method")
    known = METHODS.get(name) if isinstance(name, str) else None
    if known is None or not hasattr(known, "from_saved") or not isinstance(header.get("config"), dict):
        raise InputError(f"`path` {path} holds a method {name!r:.60} that this version does not know.")
    return known.from_saved(header, arrays, prior=prior)
