"""Sensitivity of a posterior to its prior, learning rate, weight and noise levels.

A posterior in closed form is recomputed. Draws are reweighted: with log ratios a of the two densities, the importance
weights are e^a, smoothed (`_internal.psis`). If the tail of the weights shows that they are unreliable, the posterior
is sampled again.
"""

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes._internal.frames import data_frame
from nsmbayes._internal.psis import smooth, trusted_k
from nsmbayes._internal.text import escape, shorten
from nsmbayes.errors import ConvergenceError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOVED, _WIDENED = 0.5, 1.25  # thresholds for a reported change: shift in standard deviations, ratio of them
LEARNING_RATE = "learning rate"
Moments = tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]


class Alternative(NamedTuple):
    """An alternative choice for a posterior, and how to compute its effect."""

    choice: str
    """Name of the choice: "prior", "learning rate", "weight: zeta", ..."""
    change: str
    """Description of the change: "x 2", "without 0.1", ..."""
    log_ratios: Callable[[], Float[np.ndarray, " draws"]] | None = None
    """Log of the changed density minus log of the present density, at the draws; up to a constant."""
    moments: Callable[[], Moments] | None = None
    """Recomputed mean and standard deviations of the changed posterior."""
    why_not: str = ""
    """Reason why the effect cannot be computed."""


class Change(NamedTuple):
    """The effect of an alternative choice on a posterior."""

    choice: str
    change: str
    shift: Float[np.ndarray, " d"]
    """Shift of the mean of each parameter, in standard deviations of the present posterior."""
    ratio: Float[np.ndarray, " d"]
    """Ratio of standard deviations: changed posterior divided by present posterior."""
    k: float
    """Pareto k of the importance weights; NaN if draws were not reweighted."""
    how: str
    """"exact", "reweighted", "sampled again", "not reliable", or "not known"."""
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a reliable result."""
        return self.how in ("exact", "reweighted", "sampled again")

    @property
    def size(self) -> float:
        """Size of the effect: the largest shift or scaled log ratio; a ratio of 1.25 counts like a shift of 0.5.

        For the learning rate only shifts count, since the widths always depend on it.
        """
        if not self.known:
            return 0.0
        if self.choice == LEARNING_RATE:
            return float(np.abs(self.shift).max())
        wider = np.abs(np.log(self.ratio)) / np.log(_WIDENED) * _MOVED
        return float(np.maximum(np.abs(self.shift), wider).max())


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sensitivity of a posterior to its choices; built by `posterior.sensitivity()`."""

    label: str
    parameter_names: tuple[str, ...]
    changes: tuple[Change, ...]

    def table(self) -> str:
        """Table with one line per alternative: shift in standard deviations and ratio of widths for each parameter."""
        names = [shorten(name, 12) for name in self.parameter_names]
        wide = max(12, *(len(each.choice) + 2 for each in self.changes))
        far = max(8, *(len(each.change) + 2 for each in self.changes))
        head = "".join(f"{name:>18}" for name in names)
        lines = [f"{'choice':<{wide}}{'change':<{far}}{head}{'k':>7}  how"]
        for each in self.changes:
            numbers = "".join(f"{f'{s:+.2f} sd, x {r:.2f}':>18}" for s, r in zip(each.shift, each.ratio, strict=True))
            if not each.known:
                numbers = f"{'-':>18}" * len(names)
            k = f"{each.k:.2f}" if np.isfinite(each.k) else "-"
            lines.append(f"{each.choice:<{wide}}{each.change:<{far}}{numbers}{k:>7}  {each.how}")
        return escape("\n".join(lines), keep="\n")

    def to_pandas(self) -> Any:
        """DataFrame with one row per alternative and parameter; needs pandas."""
        rows = [
            {"choice": each.choice, "change": each.change, "parameter": name, "shift": float(each.shift[j]),
             "ratio": float(each.ratio[j]), "k": each.k, "how": each.how, "note": each.note}
            for each in self.changes
            for j, name in enumerate(self.parameter_names)
        ]  # fmt: skip
        return data_frame(rows)

    def plot(self) -> "Figure":
        """Figure of shifts of means and ratios of standard deviations, one line per alternative."""
        from nsmbayes.posteriors.sensitivity_figure import plot_sensitivity  # matplotlib is slow to import

        return plot_sensitivity(self)

    def explain(self) -> str:
        """Describe in plain sentences which choices influence the posterior."""
        return "\n".join(textwrap.fill(part, 110) for part in self.paragraphs())

    def paragraphs(self) -> list[str]:
        """The sentences of `explain`, one string per paragraph."""
        known = sorted((each for each in self.changes if each.known), key=lambda each: -each.size)
        strong = [each for each in known if each.size >= _MOVED]
        parts = []
        if strong:
            parts.append("The posterior is sensitive to " + "; ".join(self._words(each) for each in strong) + ".")
        elif known:
            parts.append(
                f"None of the changes moves a parameter by {_MOVED:g} standard deviations or makes it {_WIDENED:g} "
                f"times as wide or narrow. The largest effect is that of {self._words(known[0])}."
            )
        if any(each.choice == LEARNING_RATE for each in strong):
            parts.append(
                "Widths follow the learning rate, as they should. That a mean does says that prior and data disagree, "
                "or that there is more than one mode."
            )
        notes = list(dict.fromkeys(each.note for each in self.changes if each.note))
        return [escape(part) for part in parts + notes]

    def _words(self, each: Change) -> str:
        j = int(np.abs(each.shift).argmax())
        i = int(np.abs(np.log(each.ratio)).argmax())
        names = [shorten(name) for name in self.parameter_names]
        return (
            f"{each.choice} {each.change} ({names[j]} moves by {each.shift[j]:+.2f} standard deviations, {names[i]} "
            f"gets {each.ratio[i]:.2f} times as wide)"
        )

    def __repr__(self) -> str:
        return (
            f"Sensitivity({self.label}, {len(self.changes)} changes, largest {max(c.size for c in self.changes):.2g})"
        )


class Variations(NamedTuple):
    """Draws of a posterior, and alternatives with log ratios at these draws."""

    draws: Float[np.ndarray, "draws d"]
    alternatives: Iterable[Alternative]


def sensitivity_of(posterior: Any, variations: Variations, refit: bool) -> Sensitivity:
    """Compute the effect of each alternative."""
    draws, as_it_is = variations.draws, (posterior.mean, posterior.std)
    found = tuple(_change(draws, as_it_is, each, refit) for each in variations.alternatives)
    return Sensitivity(posterior.label, posterior.parameter_names, found)


def _change(draws: np.ndarray, as_it_is: Moments, each: Alternative, refit: bool) -> Change:
    nothing = np.full(draws.shape[1], np.nan)

    def answer(moments: Moments, k: float, how: str, note: str = "") -> Change:
        shift, ratio = (moments[0] - as_it_is[0]) / as_it_is[1], moments[1] / as_it_is[1]
        return Change(each.choice, each.change, shift, ratio, k, how, note)

    if each.log_ratios is None:
        if each.moments is None:
            return Change(each.choice, each.change, nothing, nothing, np.nan, "not known", each.why_not)
        return answer(each.moments(), np.nan, "exact")
    log_weights, found = smooth(each.log_ratios())
    k = float(found)
    weights = np.exp(log_weights)
    mean = weights @ draws
    # relative to the same draws with equal weights, so that common random errors cancel
    std = np.sqrt(weights @ (draws - mean) ** 2) / draws.std(axis=0) * as_it_is[1]
    reweighted = as_it_is[0] + mean - draws.mean(axis=0), std
    if k <= trusted_k(len(draws)):
        return answer(reweighted, k, "reweighted")
    if refit and each.moments is not None:
        try:
            return answer(each.moments(), k, "sampled again")
        except ConvergenceError as error:
            note = f"{each.choice} {each.change}: sampled again without success. {error}"
            return answer(reweighted, k, "not reliable", note)
    note = (
        f"{each.choice} {each.change}: the draws cannot tell (Pareto k = {k:.2f}). Build the posterior with it to know."
    )
    return answer(reweighted, k, "not reliable", note)
