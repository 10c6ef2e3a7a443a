"""Fingerprints, which show whether two campaigns have the same simulator and the same prior.

The fingerprint of a simulator is computed from source code: that of its function, of the variables in its closure, and
of the functions of its own package that it uses. Other libraries and files that it reads are not included.
"""

import hashlib
import inspect
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from nsmbayes.simulators.base import Simulator
from nsmbayes.simulators.numbered import draw_theta

_DIGITS = 16  # hexadecimal
_PRIOR_ROWS = 16
_DEEP = 50  # largest depth of nested objects


def simulator_fingerprint(simulator: Simulator) -> str:
    """A short hash of a simulator.

    Example:
        >>> import nsmbayes as nsm
        >>> from nsmbayes.simulators.campaigns.fingerprint import simulator_fingerprint
        >>> one, two = (nsm.NumpySimulator(lambda rng, theta: rng.normal(scale=s, size=1)) for s in (1.0, 2.0))
        >>> len(simulator_fingerprint(one))
        16
    """
    kind = type(simulator)
    parts = (kind.__module__, kind.__qualname__, *simulator.identity())
    return _digest("\n".join(_told(parts, set(), 0)))


def prior_fingerprint(prior: Any) -> str:
    """A short hash of a prior: of some of its draws, rounded so that all machines agree."""
    drawn = draw_theta(prior, 0, 0, _PRIOR_ROWS)
    return _digest("\n".join(f"{value:.6g}" for value in drawn.ravel()))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _told(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    """`value` as lines of text that are the same in every process."""
    if depth > _DEEP or (id(value) in seen and not isinstance(value, str | int | float | bool | type(None))):
        return
    if isinstance(value, str | int | float | complex | bool | type(None)):
        yield repr(value)
    elif isinstance(value, bytes):
        yield hashlib.sha256(value).hexdigest()
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _told(item, seen, depth + 1)
    elif isinstance(value, set | frozenset):
        yield from sorted("\n".join(_told(item, seen, depth + 1)) for item in value)
    elif isinstance(value, dict):
        for key in sorted(value, key=repr):
            yield repr(key)
            yield from _told(value[key], seen, depth + 1)
    elif isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        yield f"{array.dtype} {array.shape} {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"
    elif isinstance(value, types.MethodType):
        seen.add(id(value))
        yield from _told((value.__func__, value.__self__), seen, depth + 1)
    elif isinstance(value, types.FunctionType):
        seen.add(id(value))
        yield from _function(value, seen, depth + 1)
    elif isinstance(value, types.ModuleType):
        yield value.__name__
    elif callable(getattr(value, "__wrapped__", None)):  # jitted or otherwise decorated
        yield from _told(value.__wrapped__, seen, depth + 1)
    else:
        seen.add(id(value))
        kind = value if isinstance(value, type) else type(value)
        yield f"{kind.__module__}.{kind.__qualname__}"
        if not isinstance(value, type) and hasattr(value, "__dict__"):
            yield from _told(vars(value), seen, depth + 1)


def _function(function: types.FunctionType, seen: set[int], depth: int) -> Iterator[str]:
    yield function.__qualname__
    try:
        yield inspect.getsource(function).strip()
    except (OSError, TypeError):  # typed in interactively, or compiled from a string
        yield from _code(function.__code__)
    closed = inspect.getclosurevars(function)
    yield from _told((function.__defaults__, function.__kwdefaults__), seen, depth)
    yield from _told(dict(closed.nonlocals), seen, depth)
    package = function.__module__.partition(".")[0] if function.__module__ else ""
    for name, value in sorted(closed.globals.items()):
        yield name
        home = (getattr(value, "__module__", None) or package).partition(".")[0]
        if home == package:  # values without a module are numbers and arrays
            yield from _told(value, seen, depth)


def _code(code: types.CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)
