"""Options as JSON: frozen dataclasses with a `kind`, in one registry, are stored as dictionaries of their fields."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from nsmbayes.errors import InputError

Config = TypeVar("Config")

_LARGEST, _LONGEST = 1_000_000, 10_000  # largest integer and longest list among the options of a saved model

REGISTRY: dict[str, type] = {}
"""Every class whose objects can be options of a saved method, by `kind`."""


def registered(cls: type[Config]) -> type[Config]:
    """Add a class to the registry: a frozen dataclass with a unique `kind`, whose fields are plain values.

    Example:
        >>> import dataclasses
        >>> from typing import ClassVar
        >>> @registered
        ... @dataclasses.dataclass(frozen=True)
        ... class Ruler:
        ...     kind: ClassVar[str] = "ruler"
        ...     length: float = 1.0
        >>> encode(Ruler(2.0)), decode({"kind": "ruler", "length": 3.0})
        ({'kind': 'ruler', 'length': 2.0}, Ruler(length=3.0))
        >>> del REGISTRY["ruler"]
    """
    kind = getattr(cls, "kind", None)
    if not isinstance(kind, str) or not dataclasses.is_dataclass(cls):
        raise TypeError(f"{cls.__name__} must be a dataclass with a `kind` to be registered.")
    if REGISTRY.setdefault(kind, cls) is not cls and REGISTRY[kind].__qualname__ != cls.__qualname__:
        raise TypeError(f"The kind {kind!r} of {cls.__name__} is taken by {REGISTRY[kind].__name__}.")
    REGISTRY[kind] = cls
    return cls


def encode(value: Any) -> Any:
    """An option as a JSON value: plain values do not change, tuples become lists, objects dictionaries of fields."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [encode(entry) for entry in value]
    kind = getattr(value, "kind", None)
    if REGISTRY.get(kind or "") is not type(value):
        raise InputError(
            f"A {type(value).__name__} cannot be saved: it is not registered. Decorate its class with "
            "nsmbayes.serialisation.registered."
        )
    return {"kind": kind} | {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}


def decode(value: Any) -> Any:
    """The option from the result of `encode`; missing fields get their defaults."""
    if isinstance(value, list):
        if len(value) > _LONGEST:
            raise InputError(f"An option of a saved model has {len(value):,} entries; at most {_LONGEST:,} are read.")
        return tuple(decode(entry) for entry in value)
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise InputError(f"An option of a saved model is {value!r:.30}; at most {_LARGEST:,} is read.")
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in REGISTRY:
        raise InputError(f"There is no kind {kind!r:.60}; there are: {', '.join(sorted(REGISTRY))}.")
    fields = {name: decode(entry) for name, entry in value.items() if name != "kind"}
    check_fields(fields, REGISTRY[kind], f"a {kind!r}")
    return REGISTRY[kind](**fields)


def check_fields(fields: Mapping[str, Any], call: Callable[..., Any], what: str) -> None:
    """Raise `InputError` if `call` has no argument for one of the fields."""
    known = tuple(inspect.signature(call).parameters)
    unknown = sorted(set(fields) - set(known))
    if unknown:
        expected = f"its fields are {', '.join(known)}" if known else "it has no fields"
        raise InputError(f"{what} has no field {unknown[0]!r:.60}; {expected}.")
