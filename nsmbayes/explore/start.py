"""From a saved model and data to something that can be explored."""

from typing import Any

from nsmbayes._internal import checks
from nsmbayes.errors import InputError
from nsmbayes.explore.amortised import AmortisedExplorer
from nsmbayes.explore.conjugate import ConjugateExplorer
from nsmbayes.explore.explorer import Explorer
from nsmbayes.methods import NSMBayes, NSMBayesAmortised, NSMBayesConj

MOST = 5000
"""Rows that the page takes: every one of them can be dragged."""


def explorer_of(method: Any, x: Any, *, beta: float | None = None, seed: int = 0) -> Explorer[Any]:
    """What answers at once while rows of `x` and choices move, for a trained NSMBayesConj, NSMBayes(Amortised).

    NSMBayes is explored as NSMBayesAmortised, which has the same posterior from sums and shares its network.

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
    """The kind of explorer that a method has, or an error that says which methods have one."""
    if isinstance(method, NSMBayesConj):
        return ConjugateExplorer
    if isinstance(method, NSMBayesAmortised) or type(method) is NSMBayes:
        return AmortisedExplorer
    raise InputError(
        f"`model` holds {getattr(method, 'label', type(method).__name__)}, which has no posterior that moves at once. "
        "Explore one of NSMBayesConj, NSMBayesAmortised or NSMBayes."
    )


def as_amortised(method: NSMBayes) -> NSMBayesAmortised:
    """The method whose posterior is that of NSM-Bayes by sums, with the same network and options."""
    return NSMBayesAmortised(method.prior, **method.config()).adopt(method)
