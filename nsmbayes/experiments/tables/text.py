"""Numbers and tables as text."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def markdown(cells: list[list[str]]) -> str:
    """Format a Markdown table; the first row is its header. Columns without entries below the header are left out."""
    kept = [i for i, column in enumerate(zip(*cells, strict=True)) if any(column[1:])]
    head, *body = ([row[i] for i in kept] for row in cells)
    lines = [head, ["---"] * len(kept), *body]
    return "\n".join(f"| {' | '.join(line)} |".replace("| --- ", "|---").replace("--- |", "---|") for line in lines)


def _deviation(values: Float[np.ndarray, " k"]) -> float:
    return float(values.std(ddof=1))


def spread(values: Float[np.ndarray, " k"], of: Callable[[np.ndarray], float] = _deviation) -> str:
    """Format the mean, with the standard deviation or another measure `of` the spread in parentheses.

    Example:
        >>> spread(np.array([1.0, 3.0])), spread(np.array([1.0]))
        ('2.00 (1.41)', '1.00')
    """
    if values.size < 2:
        return number(float(values[0])) if values.size else ""
    return pair((float(values.mean()), of(values)))


def pair(values: tuple[float, float] | None) -> str:
    """Format a number with another one in parentheses; empty for None."""
    return "" if values is None else f"{values[0]:.2f} ({values[1]:.2f})"


def number(value: float | None) -> str:
    """Format a number with two decimal places; empty for None."""
    return "" if value is None else f"{value:.2f}"


def percent(value: float | None) -> str:
    """Format a fraction in percent; empty for None."""
    return "" if value is None else f"{value:.0%}"


def seconds(value: float | None) -> str:
    """Format seconds with at most two digits; empty below a millisecond, for methods without training in advance."""
    if value is None or value < 1e-3:
        return ""
    return f"{value:.1g}" if value < 0.1 else f"{value:.{0 if value >= 10 else 1}f}"
