"""Escaping of text from users and files (names, file names, cells of a table), so that it is safe to show."""

import unicodedata
from collections.abc import Sequence

LONGEST_NAME = 60
"""Largest number of characters of a name that are shown; the rest is left out."""
_LISTED = 8
_FORMULA = ("=", "+", "-", "@")
# Control characters, invisible marks (some of which change the writing direction), unpaired surrogates, and line and
# paragraph separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def escape(text: str, *, keep: str = "") -> str:
    r"""`text` with control characters escaped, so that a terminal shows and does not execute them; except `keep`.

    Example:
        >>> print(escape("a\x1b[2Jb\n"))
        a\x1b[2Jb\n
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or unicodedata.category(c) not in _UNSAFE else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def shorten(text: str, longest: int = LONGEST_NAME) -> str:
    """The first characters of `text`, with control characters escaped."""
    short = escape(text[:longest])
    return short if len(short) <= longest and len(text) <= longest else short[: longest - 1] + "…"


def cell(name: str) -> str:
    """A name as a cell of a CSV file; a name that a spreadsheet would take as a formula gets a leading quotation mark.

    Example:
        >>> cell("=1+1"), cell("alpha")
        ("'=1+1", 'alpha')
    """
    text = escape(name)
    return f"'{text}" if text[:1] in _FORMULA else text


def listed(names: Sequence[str]) -> str:
    """The first few names, as text."""
    shown = ", ".join(shorten(name) for name in names[:_LISTED])
    return shown + (f", ... ({len(names):,} in all)" if len(names) > _LISTED else "")
