"""From a posterior to its certificate."""

from typing import Any

from nsmbayes._precision import double_precision
from nsmbayes.posteriors.conjugate import ConjugatePosterior
from nsmbayes.posteriors.data_loss import NLELoss, NSMLoss
from nsmbayes.posteriors.generalised import GeneralisedPosterior
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.conjugate import certify_conjugate
from nsmbayes.robustness.general import certify_nsm


@double_precision
def certify(posterior: Any) -> Certificate:
    """The certificate of a posterior; what `posterior.certificate` holds.

    A posterior of a kind that no theorem is known for is not certified: nothing is ever assumed. Kinds are matched
    exactly, since a subclass may do as it likes.
    """
    if type(posterior) is ConjugatePosterior:
        return certify_conjugate(posterior)
    kind = type(posterior)
    if kind is GeneralisedPosterior:
        kind = type(posterior.target.loss)
        if kind is NSMLoss:
            return certify_nsm(posterior, posterior.target.loss)
        if kind is NLELoss:
            why = "-log q is unbounded in x, since q is a density: the farther an outlier, the greater its influence"
            return Certificate(theorem="Theorem 1: NLE is not robust", checks={"A4": Check(False, why)})
    why = f"no theorem is known for a {kind.__name__}"
    return Certificate(theorem="no theorem", checks={"A4": Check(False, why)})
