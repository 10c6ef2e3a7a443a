"""Parts of the page on a data set that ask more than its posterior: is the method calibrated, what does it hang on?"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from nsmbayes.diagnostics import calibration
from nsmbayes.errors import InputError
from nsmbayes.methods import Method
from nsmbayes.posteriors import ConjugatePosterior, Posterior

DATA_SETS = 60
"""Simulated data sets, where posteriors are built many at once."""
_MANY = 1000  # observations of a data set above which the map is of data sets of so many


class Section(NamedTuple):
    """A part of the page: a title, sentences, a figure, and numbers for the JSON file under its name."""

    name: str
    title: str
    sentences: Sequence[str]
    figure: Figure | None = None
    numbers: Any = None


def sensitivity_section(posterior: Posterior, seed: int) -> Section:
    """What the posterior hangs on."""
    title = "What does the posterior hang on?"
    try:
        found = posterior.sensitivity(seed=seed)
    except InputError as error:
        return Section("sensitivity", title, [f"Not asked: {error}"])
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
    """How often regions of the method contain the truth, on simulated data sets of the same size.

    Without a number of data sets there are `DATA_SETS`, or none where each would take about as long as the posterior.
    """
    name, title = "calibration", "Do its regions contain the truth as often as they say?"
    if datasets is None:
        datasets = DATA_SETS if quick(method, posterior) else 0
    if datasets == 0:
        return Section(name, title, ["Not asked: every data set takes about as long as this posterior did."])
    n, beta = min(posterior.n, _MANY), posterior.beta if posterior.calibration is None else None
    try:
        found = calibration(method, datasets, n, seed, simulator=simulator, beta=beta, progress=False)
    except InputError as error:
        return Section(name, title, [f"Not asked: {error}"])
    numbers = {
        "datasets": datasets,
        "n": n,
        "source": found.source,
        "coverage": [each._asdict() for each in found.coverage],
        "p_values": {curve.name: curve.p_value for curve in found.curves},
    }
    return Section(name, title, found.paragraphs(), found.plot(), numbers)


def quick(method: Method, posterior: Posterior) -> bool:
    """Whether posteriors of very many data sets take seconds: in closed form, or sampled by one program."""
    if isinstance(posterior, ConjugatePosterior):
        return True
    return getattr(method, "amortised", None) == "fully" and posterior.x.shape[1] == 1
