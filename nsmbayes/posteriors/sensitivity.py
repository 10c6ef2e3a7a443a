"""What a posterior hangs on: the same posterior with another prior, learning rate, weight or noise levels.

A posterior in closed form is computed again. Draws are reweighted: with log ratios a of the two densities the weights
are e^a, smoothed (`_internal.psis`). Where the tail of the weights says that this cannot be trusted, it is
sampled again.
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

_MOVED, _WIDENED = 0.5, 1.25  # standard deviations, and ratios of them, from which on a change is worth a sentence
LEARNING_RATE = "learning rate"
Moments = tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]


class Alternative(NamedTuple):
    """Another choice than the one that a posterior was made with, and how to find out what it would change."""

    choice: str
    """What is chosen: "prior", "learning rate", "weight: zeta", ..."""
    change: str
    """How: "x 2", "without 0.1", ..."""
    log_ratios: Callable[[], Float[np.ndarray, " draws"]] | None = None
    """Log of the density with it, minus log of the density as it is, at the draws; up to a constant."""
    moments: Callable[[], Moments] | None = None
    """Mean and standard deviations with it, computed again."""
    why_not: str = ""
    """Why it cannot be asked."""


class Change(NamedTuple):
    """What another choice would change."""

    choice: str
    change: str
    shift: Float[np.ndarray, " d"]
    """Of the mean of each parameter, in standard deviations of the posterior as it is."""
    ratio: Float[np.ndarray, " d"]
    """Of the standard deviations: with the other choice, divided by those as they are."""
    k: float
    """Pareto k of the weights; NaN where nothing was reweighted."""
    how: str
    """"exact", "reweighted", "sampled again", "not reliable", or "not known"."""
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether there is an answer that can be relied on."""
        return self.how in ("exact", "reweighted", "sampled again")

    @property
    def size(self) -> float:
        """How much it matters: the largest shift, or log ratio in units in which a quarter wider counts as much.

        That widths follow the learning rate is no news: for it, shifts count alone.
        """
        if not self.known:
            return 0.0
        if self.choice == LEARNING_RATE:
            return float(np.abs(self.shift).max())
        wider = np.abs(np.log(self.ratio)) / np.log(_WIDENED) * _MOVED
        return float(np.maximum(np.abs(self.shift), wider).max())


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """What a posterior hangs on; made by `posterior.sensitivity()`."""

    label: str
    parameter_names: tuple[str, ...]
    changes: tuple[Change, ...]

    def table(self) -> str:
        """One line for each other choice: shifts in standard deviations, and how much wider, parameter by parameter."""
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
        """One row for each other choice and parameter, as a DataFrame; needs pandas."""
        rows = [
            {"choice": each.choice, "change": each.change, "parameter": name, "shift": float(each.shift[j]),
             "ratio": float(each.ratio[j]), "k": each.k, "how": each.how, "note": each.note}
            for each in self.changes
            for j, name in enumerate(self.parameter_names)
        ]  # fmt: skip
        return data_frame(rows)

    def plot(self) -> "Figure":
        """A figure: shifts of means and ratios of standard deviations, one line for each other choice."""
        from nsmbayes.posteriors.sensitivity_figure import plot_sensitivity  # matplotlib is slow to import

        return plot_sensitivity(self)

    def explain(self) -> str:
        """What the posterior hangs on, in plain sentences."""
        return "\n".join(textwrap.fill(part, 110) for part in self.paragraphs())

    def paragraphs(self) -> list[str]:
        """The same, one string for each paragraph."""
        known = sorted((each for each in self.changes if each.known), key=lambda each: -each.size)
        strong = [each for each in known if each.size >= _MOVED]
        parts = []
        if strong:
            parts.append("The posterior hangs on " + "; ".join(self._words(each) for each in strong) + ".")
        elif known:
            parts.append(
                f"Nothing that was asked moves a parameter by {_MOVED:g} standard deviations or makes it {_WIDENED:g} "
                f"times as wide or narrow. The most is {self._words(known[0])}."
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
    """Draws of a posterior, and alternatives whose log ratios are known at them."""

    draws: Float[np.ndarray, "draws d"]
    alternatives: Iterable[Alternative]


def sensitivity_of(posterior: Any, variations: Variations, refit: bool) -> Sensitivity:
    """What each of the alternatives would change."""
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
    # relative to the same draws with equal weights: what they have in common by chance drops out
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
