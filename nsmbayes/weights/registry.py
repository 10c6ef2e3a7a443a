"""Every weight by its name; the one table that `from_config` and the contract tests read."""

import inspect
from collections.abc import Mapping
from typing import Any

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes.weights.base import Weight
from nsmbayes.weights.constant import Constant
from nsmbayes.weights.imq import IMQ
from nsmbayes.weights.plateau_imq import PlateauIMQ
from nsmbayes.weights.squared_exponential import SquaredExponential

WEIGHTS: dict[str, type[Weight]] = {weight.kind: weight for weight in (IMQ, PlateauIMQ, SquaredExponential, Constant)}


def from_config(config: Any) -> Weight:
    """The weight that `Weight.config` wrote down; fields that are left out keep their defaults.

    Example:
        >>> from nsmbayes.weights import from_config
        >>> from_config({"kind": "imq", "zeta": 2.0})
        IMQ(zeta=2.0)
    """
    if not isinstance(config, Mapping) or "kind" not in config:
        raise InputError(f'`weight` must be a dict with a "kind", e.g. {IMQ().config()}; got {config!r}.')
    kind = _checks.choice(config["kind"], "kind", tuple(WEIGHTS))
    fields = {name: value for name, value in config.items() if name != "kind"}
    known = tuple(inspect.signature(WEIGHTS[kind]).parameters)
    unknown = sorted(set(fields) - set(known))
    if unknown:
        expected = f"its fields are {', '.join(known)}" if known else "it has no fields"
        raise InputError(f"`weight` of kind {kind!r} has no field {unknown[0]!r}; {expected}.")
    return WEIGHTS[kind](**fields)
