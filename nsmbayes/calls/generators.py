"""NumPy generators of numbered rows: the generator of row i depends only on (seed, i).

So simulations do not change with the number of workers, the size of a batch or the order of the work. Numbers come from
Philox, a counter-based generator: the seed and the stream are its key, the row is its counter.
"""

import threading
from typing import Any

import numpy as np

_ROWS, _CALLS = 102, 103  # random streams of a seed
_of_thread = threading.local()


class RowGenerators:
    """NumPy generators, one per row. Each is valid until the next call of `at`: creating a new object takes 25 us.

    Example:
        >>> from nsmbayes.calls import RowGenerators
        >>> generators = RowGenerators(seed=0)
        >>> first = generators.at(7).uniform()
        >>> _ = generators.at(8).uniform()
        >>> generators.at(7).uniform() == first
        True
    """

    def __init__(self, seed: int, stream: int = _ROWS):
        key = np.random.SeedSequence((stream, seed)).generate_state(2, np.uint64)
        self._source = np.random.Philox(key=key)
        self._state: Any = self._source.state
        self._generator = np.random.Generator(self._source)

    def at(self, row: int) -> np.random.Generator:
        """The generator of a row, in its initial state."""
        self._state["state"]["counter"][3] = row  # the last of four words: each row has 2^192 numbers
        self._source.state = self._state
        return self._generator


def row_generators(seed: int) -> RowGenerators:
    """The generators of the rows of a seed, for this thread."""
    return _kept(seed, _ROWS)


def call_generators(seed: int) -> RowGenerators:
    """Generators for calls of several rows at once, independent of the generators of the rows."""
    return _kept(seed, _CALLS)


def _kept(seed: int, stream: int) -> RowGenerators:
    if getattr(_of_thread, "name", None) != (seed, stream):
        _of_thread.name, _of_thread.generators = (seed, stream), RowGenerators(seed, stream)
    return _of_thread.generators
