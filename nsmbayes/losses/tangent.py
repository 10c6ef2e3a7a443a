"""The loss of very many observations near one theta: the gradient of all, the curvature of a part.

A posterior is about n^(-1/2) wide. The loss of m of n observations, n / m times as large, has a gradient that is off by
(n / m)^(1/2) widths of the posterior, but its curvature is off by a fraction of m^(-1/2) only. So the gradient is that
of all observations, which costs as much as a few losses of them, and the rest is that of a part:

    L(theta) - L(t) = (n / m) (L_m(theta) - L_m(t)) + (theta - t)' (grad L(t) - (n / m) grad L_m(t))
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes.losses.blocks import BlockedLoss

PART = 64_000
"""Observations in a part."""
_WIDE = 2000  # observations in a block: few blocks are made sooner than many


class Tangent(NamedTuple):
    """The loss of all observations minus its value at one theta, by a part of them and the gradient of all."""

    full: BlockedLoss
    """All observations, in random order."""
    size: int
    """Observations in a part."""
    number: int
    """Which part."""
    theta: Float[np.ndarray, " d"]
    """Where the gradient is that of all."""
    gradient: Float[np.ndarray, " d"]
    """Of the loss of all observations there."""
    slope: Float[np.ndarray, " d"]
    """What the gradient of the part, scaled, is short of that."""
    value: float
    """The loss of the part there."""

    @classmethod
    def at(cls, theta: Float[np.ndarray, " d"], full: BlockedLoss, size: int = PART) -> "Tangent":
        """At `theta`, with the first part."""
        wide = full._replace(size=min(_WIDE, size))
        return cls(wide, size, -1, theta, wide.gradient(theta), np.zeros_like(theta), 0.0).with_next_part()

    def with_next_part(self) -> "Tangent":
        """With the next part in place of this one; after the last, the first again. Only whole parts are used."""
        new = self._replace(number=(self.number + 1) % (self.full.n // self.size))
        slope = self.gradient - new.scale * new.part.gradient(self.theta)
        return new._replace(slope=slope, value=float(new.part.total(self.theta[None])[0]))

    @property
    def part(self) -> BlockedLoss:
        """The loss of the part."""
        mine = slice(self.number * self.size, (self.number + 1) * self.size)
        multiples = self.full.multiples
        return self.full._replace(x=self.full.x[mine], multiples=None if multiples is None else multiples[mine])

    @property
    def scale(self) -> float:
        """For how many observations one of the part stands."""
        return self.full.n / self.size

    def total(self, theta: Float[np.ndarray, "k d"]) -> Float[np.ndarray, " k"]:
        """The loss of all observations at k thetas, minus that at `self.theta`."""
        return self.scale * (self.part.total(theta) - self.value) + (theta - self.theta) @ self.slope
