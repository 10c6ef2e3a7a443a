"""Simulations that do not fit into memory and are read block by block."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

Block = tuple[Float[np.ndarray, "rows d_theta"], Float[np.ndarray, "rows d_x"]]


class Stream(ABC):
    """Standardised simulations, some of which are held out. Rows must be independent of one another."""

    @property
    @abstractmethod
    def m(self) -> int:
        """Number of simulations to train on."""

    @abstractmethod
    def training(self, epoch: int) -> Iterator[Block]:
        """The blocks to train on, in an order that differs between epochs."""

    @abstractmethod
    def held_out(self) -> Iterator[Block]:
        """The held-out blocks."""
