"""What has been proved about the robustness of one posterior, and in which words."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from nsmbayes._internal.text import escape
from nsmbayes.errors import InputError

_WIDTH = 110
_INFORMATIVE = 100.0  # a larger KL divergence says no more than that there is a bound
_MEANINGS = {
    "A1": "the weight and its gradient are bounded",
    "A2": "log q is twice differentiable in x, and what the loss integrates is bounded",
    "A3": "q is an exponential family, linear in theta",
    "A4": "the weight bounds the growth of the score and of its derivative in x, for all theta",
    "A4'": "as A4, by powers of |x| and |theta|, with an inverse multiquadric weight and a sub-exponential prior",
    "A5": "the weight bounds the derivatives of T and b",
    "prior": "the prior has a bounded density and sub-exponential tails",
    "scatter": "the location and scatter behind the weight cannot be moved far by a few observations",
}


_PROVED = "Proved for all parameters and all places of an observation: a KL divergence of at most {bound:.3g}."
_AT_DRAWS = (
    "At the draws of the posterior, for all places of an observation: a KL divergence of at most {kl}{means}. It "
    "is an average over draws: proved for the distribution that they make up, and for the posterior itself estimated, "
    "with a standard error of {error:.2g}."
)


class AtDraws(NamedTuple):
    """Bounds for all places of one observation, at the draws of a posterior: averages over them, not over all theta.

    For the distribution that the draws make up they are proved. For the posterior itself they are estimates.
    """

    kl: float
    """KL(posterior || posterior with one observation replaced) is at most this, with the weight as it stands."""
    error: float
    """Standard error of `kl`, from the number of effective draws."""
    shift: float | None
    """The mean of each parameter moves by at most so many standard deviations; None where that was not bounded."""


class Check(NamedTuple):
    """Whether one assumption holds, and why or why not. `holds` is None where the theorem at hand does not need it."""

    holds: bool | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A theorem about one posterior: about its network, weight, prior, location and scatter as they are.

    `robust` is only ever True where a proof has been carried through with explicit constants. False means that there
    is a reason why not, or that no proof is known; `explain()` says which.

    Example:
        >>> from nsmbayes.robustness import Certificate, Check
        >>> checks = {"A1": Check(False, "nothing is known about the weight MyWeight")}
        >>> certificate = Certificate(theorem="Theorem 2", checks=checks)
        >>> certificate.robust
        False
        >>> print(certificate.verdict)
        NOT certified robust: nothing is known about the weight MyWeight (A1).
    """

    theorem: str
    """The result that gives the guarantee, or that excludes it."""
    checks: dict[str, Check]
    """Every assumption that was checked, by its name in the paper; also "prior" and "scatter"."""
    assumption: str | None = None
    """The assumption through which robustness follows: "A4", "A4'" or "A5"; None if it does not."""
    constants: dict[str, float] = field(default_factory=dict)
    """Explicit constants, rounded outward; see the documentation for their names."""
    influence_bound: float | None = None
    """KL(posterior || posterior with one observation replaced) is at most this, with the weight as it stands.

    Proved for all parameters and all places of the observation."""
    at_draws: AtDraws | None = None
    """The same from the draws of the posterior, for all places of the observation: far smaller, where it is known."""
    refitted: float | None = None
    """The same with the weight fitted again to the changed data: the largest of a few that were tried, not a bound."""
    vanishing: bool = False
    """Whether the loss of an observation tends to 0 as it moves away, as if it were not there."""
    notes: tuple[str, ...] = ()
    """What else a reader should know."""

    @property
    def robust(self) -> bool:
        """Whether robustness has been proved."""
        return self.assumption is not None and not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """The assumptions that do not hold, or could not be proved."""
        return tuple(name for name, check in self.checks.items() if check.holds is False)

    def without_bound(self) -> "Certificate":
        """A copy without an influence bound, for what is not robust."""
        return replace(self, influence_bound=None, at_draws=None)

    @property
    def verdict(self) -> str:
        """Whether robustness has been proved, and why or why not, in one sentence."""
        if not self.robust:
            reasons = "; ".join(dict.fromkeys(f"{self.checks[name].why} ({name})" for name in self.failures))
            return f"NOT certified robust: {reasons or self.theorem}."
        bound, at = "", self.at_draws
        if at is not None and at.kl <= _INFORMATIVE:
            bound = "; with the weight as it stands it changes the posterior, as its draws show it, by a KL divergence "
            bound += f"of at most {_rounded_up(at.kl, 2)} (standard error {at.error:.1g})"
        elif self.influence_bound is not None and self.influence_bound <= _INFORMATIVE:
            bound = "; with the weight as it stands it changes the posterior by a KL divergence of at most "
            bound += f"{self.influence_bound:.3g}{self._when_refitted()}"
        return f"Certified robust ({self.assumption}): one observation has bounded influence wherever it lies{bound}."

    def _when_refitted(self) -> str:
        if self.refitted is None:
            return ""
        return f" (with the weight refitted, {self.refitted:.3g} was the largest of those tried)"

    def wrapped(self) -> str:
        """The verdict, broken into lines for a terminal."""
        return "\n".join(_wrapped(self.verdict))

    def explain(self) -> str:
        """The verdict, every assumption in words, and the constants."""
        lines = [self.wrapped(), "", f"By {self.theorem}."]
        for name, check in self.checks.items():
            mark = {True: "holds", False: "FAILS", None: "not needed"}[check.holds]
            lines += _wrapped(f"{name:<8}{mark}: {_MEANINGS[name]}. {_sentence(check.why)}", indent=8)
        if self.robust:
            far = (
                "In the limit of a distant observation it is as if that observation were not there."
                if self.vanishing
                else "A distant observation keeps some influence: bounded, but it does not vanish."
            )
            lines += ["", *_wrapped(far), *self._how_far()]
        for note in self.notes:
            lines += ["", *_wrapped(note)]
        if self.constants:
            lines += ["", "Constants, rounded outward:"]
            lines += [f"  {name:<28}{value:.6g}" for name, value in self.constants.items()]
        return escape("\n".join(lines), keep="\n")

    def _how_far(self) -> list[str]:
        """The bounds of the influence in words: for which parameters and places each of them is proved."""
        lines = []
        if self.influence_bound is not None:
            lines += ["", *_wrapped(_PROVED.format(bound=self.influence_bound))]
        if self.at_draws is not None:
            kl, error, shift = self.at_draws
            means = "" if shift is None else f", and no mean moves by more than {_rounded_up(shift, 2)} of its sds"
            lines += ["", *_wrapped(_AT_DRAWS.format(kl=_rounded_up(kl, 3), error=error, means=means))]
        return lines

    def as_json(self) -> dict[str, object]:
        """Everything, as JSON can hold it: numbers that are not finite become None."""
        return {
            "robust": self.robust,
            "assumption": self.assumption,
            "theorem": self.theorem,
            "verdict": self.verdict,
            "influence_bound": _finite_or_none(self.influence_bound),
            "at_draws": None if self.at_draws is None else self.at_draws._asdict(),
            "refitted": _finite_or_none(self.refitted),
            "vanishing": self.vanishing,
            "checks": {name: {"holds": check.holds, "why": check.why} for name, check in self.checks.items()},
            "constants": {name: _finite_or_none(value) for name, value in self.constants.items()},
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Certificate":
        """The certificate of which `as_json` made `document`.

        A constant that is None comes back as infinity: a bound that was not finite says nothing, and infinity says no
        more. `robust` and `verdict` are not read; they follow from the rest.
        """
        missing = [name for name in _FIELDS if name not in document and name not in _NEWER]
        if missing:
            raise InputError(f"`document` must be what Certificate.as_json() returned; it lacks {missing[0]!r}.")
        _check_types(document)
        return cls(
            theorem=document["theorem"],
            checks={name: Check(check["holds"], check["why"]) for name, check in document["checks"].items()},
            assumption=document["assumption"],
            constants={name: math.inf if value is None else value for name, value in document["constants"].items()},
            influence_bound=document["influence_bound"],
            at_draws=AtDraws(**document["at_draws"]) if document.get("at_draws") else None,
            refitted=document.get("refitted"),
            vanishing=document["vanishing"],
            notes=tuple(document["notes"]),
        )


_FIELDS = tuple(field.name for field in fields(Certificate))
_NEWER = ("at_draws", "refitted")  # which older documents lack


def _check_types(document: Mapping[str, Any]) -> None:
    """Refuse what `as_json` would not have written."""
    number = int | float | None

    def are(values: Any, kind: Any) -> bool:
        return all(isinstance(value, kind) for value in values)

    def is_check(name: str, check: Any) -> bool:
        return (
            isinstance(check, Mapping)
            and name in _MEANINGS
            and isinstance(check.get("holds", 0), bool | None)
            and isinstance(check.get("why"), str)
        )

    def is_at_draws(value: Any) -> bool:
        if value is None:
            return True
        known = isinstance(value, Mapping) and set(value) == set(AtDraws._fields)
        return known and are(value.values(), number) and None not in (value["kl"], value["error"])

    right = {
        "theorem": isinstance(document["theorem"], str),
        "assumption": document["assumption"] is None or document["assumption"] in ("A4", "A4'", "A5"),
        "influence_bound": isinstance(document["influence_bound"], number),
        "at_draws": is_at_draws(document.get("at_draws")),
        "refitted": isinstance(document.get("refitted"), number),
        "vanishing": isinstance(document["vanishing"], bool),
        "notes": isinstance(document["notes"], list) and are(document["notes"], str),
        "constants": isinstance(document["constants"], Mapping) and are(document["constants"].values(), number),
        "checks": isinstance(document["checks"], Mapping)
        and all(is_check(name, check) for name, check in document["checks"].items()),
    }
    for name, good in right.items():
        if not good:
            raise InputError(f"`document` must be what Certificate.as_json() returned; its {name!r} is damaged.")


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _rounded_up(value: float, digits: int) -> str:
    """A bound in a few digits, which must not be below it."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1) if value > 0 else 1.0
    return f"{math.ceil(value / unit) * unit:.{digits}g}"


def _sentence(why: str) -> str:
    return why[:1].upper() + why[1:] + "."


def _wrapped(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * indent)
