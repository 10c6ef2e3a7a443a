"""Options of a base class, shown in the signature and the docstring of the class that a user calls.

A method passes `**options` on to its base class. `show_inherited_options` adds the names and defaults of these options
to the signature, which `help` and editors show, and their descriptions to `Args:`.
"""

import inspect
import re
from typing import Any

_ARGS = "Args:\n"
_ENTRY = re.compile(r"^    (\w+): .*\n(?:^     .*\n)*", re.MULTILINE)


def show_inherited_options(cls: type[Any]) -> None:
    """Add the options that `cls` passes on to its signature and docstring; call it after the class is defined.

    Example:
        >>> class Base:
        ...     '''Base.
        ...
        ...     Args:
        ...         size: how large.
        ...     '''
        ...     def __init__(self, *, size=1): ...
        >>> class Derived(Base):
        ...     '''Derived.'''
        ...     def __init__(self, **options): super().__init__(**options)
        >>> show_inherited_options(Derived)
        >>> inspect.signature(Derived)
        <Signature (*, size=1)>
        >>> print(Derived.__doc__)
        Derived.
        <BLANKLINE>
        Args:
            size: how large.
        <BLANKLINE>
    """
    parents = [base for base in cls.__mro__[1:] if "__init__" in vars(base) and base is not object]
    cls.__signature__ = _merged([inspect.signature(each.__init__) for each in (cls, *parents)])
    shown = [name for name in cls.__signature__.parameters if name != "options"]
    described: dict[str, str] = {}
    for each in (cls, *parents):
        described = {match[1]: match[0] for match in _ENTRY.finditer(_split(each)[1])} | described
    head, _, rest = _split(cls)
    cls.__doc__ = head + _ARGS + "".join(described[name] for name in shown if name in described) + rest


def _merged(signatures: list[inspect.Signature]) -> inspect.Signature:
    """The first signature, with `**options` replaced by the keywords of the next ones as long as these pass on more."""
    found: dict[str, inspect.Parameter] = {}
    for signature in signatures:
        own = list(signature.parameters.values())[1:]  # without self
        named = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        for each in named:
            if not found or each.kind is inspect.Parameter.KEYWORD_ONLY or signature is signatures[0]:
                found.setdefault(each.name, each)
        if len(named) == len(own):
            break
    return inspect.Signature(list(found.values()))


def _split(cls: type[Any]) -> tuple[str, str, str]:
    """The docstring of a class, split into the text before `Args:`, the entries below it, and the rest."""
    text = inspect.cleandoc(cls.__doc__ or "") + "\n"
    before, found, after = text.partition(_ARGS)
    if not found:
        place = text.find("Example:\n")
        return (text + "\n", "", "") if place < 0 else (text[:place], "", "\n" + text[place:])
    end = re.search(r"^\S", after, re.MULTILINE)
    cut = len(after) if end is None else end.start()
    return before, after[:cut], ("\n" if end is not None else "") + after[cut:]
