"""Certification of posteriors."""

from collections.abc import Callable
from typing import Any

import numpy as np

from nsmbayes._internal.precision import double_precision
from nsmbayes.losses import NLELoss, NLESetting, NSMLoss, NSMSetting
from nsmbayes.losses.corrected import uncorrected
from nsmbayes.losses.interpolated import InterpolatedLoss
from nsmbayes.losses.statistics import FamilyLoss, NoisyFamilyLoss
from nsmbayes.posteriors import AmortisedPosterior, ConjugatePosterior, GeneralisedPosterior
from nsmbayes.robustness.certificate import Certificate, Check
from nsmbayes.robustness.conjugate import certify_conjugate
from nsmbayes.robustness.general import certify_interpolated, certify_nsm


def certify_nle(posterior: GeneralisedPosterior) -> Certificate:
    """Theorem 1: NLE is not robust."""
    del posterior
    why = "-log q is unbounded in x, since q is a density: the farther an outlier, the greater its influence"
    return Certificate(theorem="Theorem 1: NLE is not robust", checks={"A4": Check(False, why)})


CERTIFIERS: dict[tuple[type, ...], Callable[[Any], Certificate]] = {
    (ConjugatePosterior, FamilyLoss): certify_conjugate,
    (ConjugatePosterior, NoisyFamilyLoss): certify_conjugate,
    (GeneralisedPosterior, NSMSetting, NSMLoss): certify_nsm,
    (AmortisedPosterior, NSMSetting, InterpolatedLoss): certify_interpolated,
    (GeneralisedPosterior, NLESetting, NLELoss): certify_nle,
}
"""Functions that certify a posterior, by its type and the types of the parts of its loss.

Types are looked up exactly, since a subclass may behave differently.
"""


@double_precision
def certify(posterior: Any) -> Certificate:
    """Certify the robustness of a posterior; `posterior.certificate` stores the result.

    A posterior of a kind without a known theorem is not certified: nothing is assumed without a proof.
    """
    types = _types(posterior)
    if types in CERTIFIERS:
        try:
            return CERTIFIERS[types](posterior)
        except (OverflowError, np.linalg.LinAlgError):
            why = "numbers of the network, the prior or the data are too large for a bound to be computed"
            return Certificate(theorem="no theorem", checks={"A4": Check(False, why)})
    known = {each for key in CERTIFIERS for each in key}
    unknown = next((each for each in types if each not in known), types[-1])
    why = f"no theorem is known for a {unknown.__name__}"
    return Certificate(theorem="no theorem", checks={"A4": Check(False, why)})


def _types(posterior: Any) -> tuple[type, ...]:
    """The key of a posterior in `CERTIFIERS`."""
    if isinstance(posterior, ConjugatePosterior):
        return type(posterior), type(posterior.statistics.loss)
    if isinstance(posterior, GeneralisedPosterior):
        return type(posterior), type(posterior.setting), type(uncorrected(posterior.target.loss))
    return (type(posterior),)
