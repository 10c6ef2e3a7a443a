from pathlib import Path
from typing import Any

from nsmbayes._checks import InputError
from nsmbayes.methods.ace import ACE as ACE
from nsmbayes.methods.base import Method as Method
from nsmbayes.methods.base import NotTrainedError as NotTrainedError
from nsmbayes.methods.gbi_sr import GBISR as GBISR
from nsmbayes.methods.nle import NLE as NLE
from nsmbayes.methods.npe import NPE as NPE
from nsmbayes.methods.npe_rs import NPERS as NPERS
from nsmbayes.methods.npl_mmd import NPLMMD as NPLMMD
from nsmbayes.methods.nsm_bayes import NSMBayes as NSMBayes
from nsmbayes.methods.nsm_bayes_conj import NSMBayesConj as NSMBayesConj
from nsmbayes.methods.rsnle import RSNLE as RSNLE
from nsmbayes.storage import read_model

METHODS: dict[str, type[Any]] = {
    method.name: method for method in (NLE, NSMBayes, NSMBayesConj, NPE, NPERS, NPLMMD, ACE, GBISR, RSNLE)
}


def load(path: str | Path) -> NLE | NSMBayes | NSMBayesConj:
    """Load a trained method that its `save` wrote.

    Example:
        >>> import nsmbayes as nsm
        >>> nsm.load("no-such-folder")
        Traceback (most recent call last):
        nsmbayes._checks.InputError: `path` no-such-folder is not a model folder: ...
    """
    header, arrays = read_model(path)
    if not hasattr(METHODS.get(header.get("method", "")), "from_saved"):
        raise InputError(f"`path` {path} holds a method {header.get('method')!r} that this version does not know.")
    try:
        return METHODS[header["method"]].from_saved(header, arrays)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(
            f"`path` {path} lacks a part of the model ({error}); it was not written by nsmbayes."
        ) from error
