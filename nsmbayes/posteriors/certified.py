"""Posteriors with a certificate."""

import functools
from collections.abc import Callable
from typing import Any, ClassVar


class Certified:
    """A posterior whose robustness can be looked into."""

    certify: ClassVar[Callable[[Any], Any]]
    """Set by `nsmbayes.robustness`, which stands after the posteriors in the order of imports."""

    @functools.cached_property
    def certificate(self) -> Any:
        """What is proved about the robustness of this posterior: an `nsmbayes.robustness.Certificate`.

        Computed when first asked for, in less than a second.
        """
        return type(self).certify(self)
