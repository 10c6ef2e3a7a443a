"""What to know before the numbers of a posterior are used, in plain sentences: see docs/warnings.md."""

import textwrap
from typing import Any


def wrapped(warning: str) -> str:
    """A warning, broken into lines for a terminal."""
    return textwrap.fill(f"WARNING: {warning}", 110)


def warnings_about(posterior: Any) -> tuple[str, ...]:
    """What is unusual about a posterior; empty if nothing is."""
    found = []
    if posterior.provenance.interrupted:
        found.append(
            "The training of the network was interrupted: this posterior is that of a half-trained network. Train it "
            "fully, and build the posterior again."
        )
    return tuple(found)
