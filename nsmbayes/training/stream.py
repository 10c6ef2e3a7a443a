"""Simulations that are read a block at a time, since they do not fit into memory."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

Block = tuple[Float[np.ndarray, "rows d_theta"], Float[np.ndarray, "rows d_x"]]


class Stream(ABC):
    """Standardised simulations, a part of which is held out. Rows must be independent of one another."""

    @property
    @abstractmethod
    def m(self) -> int:
        """Number of simulations to train on."""

    @abstractmethod
    def training(self, epoch: int) -> Iterator[Block]:
        """Those to train on, in an order that differs between epochs."""

    @abstractmethod
    def held_out(self) -> Iterator[Block]:
        """The others."""
