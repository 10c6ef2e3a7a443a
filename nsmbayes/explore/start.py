"""Build an explorer from a trained model and data."""

from typing import Any

from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.explore.amortised import AmortisedExplorer
from nsmbayes.explore.conjugate import ConjugateExplorer
from nsmbayes.explore.explorer import Explorer
from nsmbayes.methods import NSMBayes, NSMBayesAmortised, NSMBayesConj

MOST = 5000
"""Maximum number of rows on the page: every row can be dragged."""


def explorer_of(method: Any, x: Any, *, beta: float | None = None, seed: int = 0) -> Explorer[Any]:
    """Build an explorer of a trained NSMBayesConj, NSMBayesAmortised or NSMBayes, for live changes of `x` and choices.

    NSMBayes is explored as NSMBayesAmortised, which computes the same posterior from sums with the same network.

    Example:
        >>> import nsmbayes as nsm
        >>> from nsmbayes.explore import explorer_of
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.NSMBayesConj(task.prior, excess=None).append_simulations(*task.simulate(2000, seed=0))
        >>> _ = method.train(settings=nsm.TrainingSettings(max_epochs=2), progress=False)
        >>> explorer = explorer_of(method, task.observe(100, seed=1).x, beta=0.1)
        >>> moved = explorer.x.copy()
        >>> moved[0] += 1.0
        >>> view = explorer.view(moved, explorer.choices)
        >>> sorted(view.answers)
        ['NSM-Bayes-conj']
    """
    kind = explorer_kind(method)
    rows = len(x.values) if hasattr(x, "values") else len(x)
    if rows > MOST:
        raise InputError(
            f"`data` has {rows:,} rows, and the page takes up to {MOST:,}. Explore some of them, e.g. one row "
            f"in {-(-rows // MOST)}."
        )
    if type(method) is NSMBayes:
        method = as_amortised(method)
    beta = None if beta is None else checks.positive(beta, "beta")
    return kind.started(method, x, beta=beta, seed=checks.integer(seed, "seed"))


def explorer_kind(method: Any) -> type[Explorer[Any]]:
    """The class of explorer for a method; raises `InputError` for a method without one."""
    if isinstance(method, NSMBayesConj):
        return ConjugateExplorer
    if isinstance(method, NSMBayesAmortised) or type(method) is NSMBayes:
        return AmortisedExplorer
    raise InputError(
        f"`model` holds {getattr(method, 'label', type(method).__name__)}, which has no posterior that moves at once. "
        "Explore one of NSMBayesConj, NSMBayesAmortised or NSMBayes."
    )


def as_amortised(method: NSMBayes) -> NSMBayesAmortised:
    """The corresponding NSMBayesAmortised, with the same network and options."""
    return NSMBayesAmortised(method.prior, **method.config()).adopt(method)
