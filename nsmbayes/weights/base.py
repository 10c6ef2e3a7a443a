"""What every weight function is: a radial function of the Mahalanobis distance."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class Weight(eqx.Module):
    """A weight w(r) in [0, 1] of the Mahalanobis distance r ≥ 0 of an observation from the robust location.

    Only w² enters the score-matching loss, so that is what a weight computes, together with its slope.
    Weights are compared by value, and the dict of `config` rebuilds them through `from_config`.

    Attributes:
        kind: the name of the weight in its `config`.
        bounded: w and its gradient are bounded (Assumption A1 of the paper).
    """

    kind: ClassVar[str]
    bounded: ClassVar[bool] = True

    @abc.abstractmethod
    def squared(self, r: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """w²(r) and its derivative d w²/dr for one distance, which may be infinite."""

    def whole(self, r: Float[Array, ""]) -> Float[Array, ""]:
        """What an observation at distance r counts as a whole where its loss is summed over noise levels: here 1."""
        return jnp.ones_like(r)

    @property
    @abc.abstractmethod
    def decay(self) -> float:
        """The power p with w(r) ~ r^-p far away: what the growth of the surrogate's score is held against."""

    @property
    def decays(self) -> bool:
        """Whether w(r) tends to 0, without which an outlier keeps its influence."""
        return self.decay > 0

    @abc.abstractmethod
    def config(self) -> dict[str, str | float | None]:
        """The weight as a dict that JSON can hold, e.g. `{"kind": "imq", "zeta": 1.0}`."""
