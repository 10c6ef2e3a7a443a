"""Certificates: proved statements about the robustness of one posterior, and their text."""

import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from nsmbayes._internal.text import escape
from nsmbayes.errors import InputError

_WIDTH = 110
_INFORMATIVE = 100.0  # a larger bound of the KL divergence is not shown in the verdict
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
    """Bounds for all places of one observation, at the draws of a posterior: averages over draws, not over all theta.

    They are proved for the empirical distribution of the draws, and estimates for the posterior itself.
    """

    kl: float
    """Upper bound of KL(posterior || posterior with one observation replaced), with the weight unchanged."""
    error: float
    """Standard error of `kl`, from the number of effective draws."""
    shift: float | None
    """Upper bound of the shift of each parameter's mean, in standard deviations; None if it was not bounded."""


class Check(NamedTuple):
    """Whether one assumption holds, with the reason. `holds` is None if the theorem does not need the assumption."""

    holds: bool | None
    why: str


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A theorem about one posterior, with its actual network, weight, prior, location and scatter.

    `robust` is True only if the proof was carried out with explicit constants. False means that an assumption fails, or
    that no proof is known; `explain()` says which.

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
    """The assumption that implies robustness: "A4", "A4'" or "A5"; None if not certified."""
    constants: dict[str, float] = field(default_factory=dict)
    """Explicit constants, rounded outward; see the documentation for their names."""
    influence_bound: float | None = None
    """Upper bound of KL(posterior || posterior with one observation replaced), with the weight unchanged.

    Proved for all parameters and all places of the observation."""
    at_draws: AtDraws | None = None
    """Bounds at the draws of the posterior, for all places of the observation: far smaller, if available."""
    refitted: float | None = None
    """The same KL divergence with the weight refitted to the changed data: the largest of a few trials, not a bound."""
    vanishing: bool = False
    """Whether the loss of an observation tends to 0 as it moves away, so that its influence vanishes."""
    notes: tuple[str, ...] = ()
    """Additional notes."""

    @property
    def robust(self) -> bool:
        """Whether robustness has been proved."""
        return self.assumption is not None and not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """The assumptions that do not hold or could not be proved."""
        return tuple(name for name, check in self.checks.items() if check.holds is False)

    def without_bound(self) -> "Certificate":
        """Return a copy without influence bounds, for a posterior that is not certified."""
        return replace(self, influence_bound=None, at_draws=None)

    @property
    def verdict(self) -> str:
        """The result in one sentence: whether robustness has been proved, with the reason."""
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
        """Wrap the verdict into lines for a terminal."""
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
        """The bounds of the influence in words, with the parameters and places for which they are proved."""
        lines = []
        if self.influence_bound is not None:
            lines += ["", *_wrapped(_PROVED.format(bound=self.influence_bound))]
        if self.at_draws is not None:
            kl, error, shift = self.at_draws
            means = "" if shift is None else f", and no mean moves by more than {_rounded_up(shift, 2)} of its sds"
            lines += ["", *_wrapped(_AT_DRAWS.format(kl=_rounded_up(kl, 3), error=error, means=means))]
        return lines

    def as_json(self) -> dict[str, object]:
        """Convert to a JSON document; numbers that are not finite become None."""
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
        """Rebuild a certificate from the document of `as_json`.

        A constant that is None becomes infinity: both mean that there is no finite bound. `robust` and `verdict` are
        not read; they follow from the other fields.
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
_NEWER = ("at_draws", "refitted")  # missing in older documents


def _check_types(document: Mapping[str, Any]) -> None:
    """Raise `InputError` if `as_json` could not have written the document."""
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
    """Format a bound with a few digits, rounded up."""
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1) if value > 0 else 1.0
    return f"{math.ceil(value / unit) * unit:.{digits}g}"


def _sentence(why: str) -> str:
    return why[:1].upper() + why[1:] + "."


def _wrapped(text: str, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * indent)
