"""Which observations a posterior hardly listens to, in words."""

import numpy as np
from jaxtyping import Float

DOUBTFUL = 0.1  # weight below which an observation is called doubtful


def describe_doubts(weights: Float[np.ndarray, " n"]) -> str:
    """One sentence on how many observations are doubtful."""
    doubtful = int((weights < DOUBTFUL).sum())
    return (
        f"{doubtful:,} of {len(weights):,} observations have a weight below {DOUBTFUL} (smallest {weights.min():.2g})."
    )
