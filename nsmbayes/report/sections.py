"""Sections of the diagnosis page about the calibration of the method and the sensitivity of the posterior."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from nsmbayes.diagnostics import calibration
from nsmbayes.errors import InputError
from nsmbayes.methods import Method
from nsmbayes.posteriors import ConjugatePosterior, Posterior

DATA_SETS = 60
"""Default number of simulated data sets, if many posteriors are built together."""
_MANY = 1000  # maximum number of observations per simulated data set


class Section(NamedTuple):
    """A section of the page: a title, sentences, a figure, and numbers for the JSON file under `name`."""

    name: str
    title: str
    sentences: Sequence[str]
    figure: Figure | None = None
    numbers: Any = None


def sensitivity_section(posterior: Posterior, seed: int) -> Section:
    """Build the section about the sensitivity of the posterior."""
    title = "How sensitive is the posterior to its choices?"
    try:
        found = posterior.sensitivity(seed=seed)
    except InputError as error:
        return Section("sensitivity", title, [f"Not checked: {error}"])
    numbers = [
        {
            "choice": each.choice,
            "change": each.change,
            "shift": each.shift.tolist() if each.known else None,
            "ratio": each.ratio.tolist() if each.known else None,
            "how": each.how,
        }
        for each in found.changes
    ]
    return Section("sensitivity", title, found.paragraphs(), found.plot(), numbers)


def calibration_section(
    method: Method, posterior: Posterior, simulator: Any, datasets: int | None, seed: int
) -> Section:
    """Build the section about the coverage of the method's regions on simulated data sets of the same size.

    The default number of data sets is `DATA_SETS`, or 0 if each would take about as long as the posterior.
    """
    name, title = "calibration", "Do its regions contain the truth as often as they say?"
    if datasets is None:
        datasets = DATA_SETS if quick(method, posterior) else 0
    if datasets == 0:
        return Section(name, title, ["Not checked: every data set takes about as long as this posterior did."])
    n, beta = min(posterior.n, _MANY), posterior.beta if posterior.calibration is None else None
    try:
        found = calibration(method, datasets, n, seed, simulator=simulator, beta=beta, progress=False)
    except InputError as error:
        return Section(name, title, [f"Not checked: {error}"])
    numbers = {
        "datasets": datasets,
        "n": n,
        "source": found.source,
        "coverage": [each._asdict() for each in found.coverage],
        "p_values": {curve.name: curve.p_value for curve in found.curves},
    }
    return Section(name, title, found.paragraphs(), found.plot(), numbers)


def quick(method: Method, posterior: Posterior) -> bool:
    """Whether posteriors of very many data sets take seconds: in closed form, or sampled together by one program."""
    if isinstance(posterior, ConjugatePosterior):
        return True
    return getattr(method, "amortised", None) == "fully" and posterior.x.shape[1] == 1
