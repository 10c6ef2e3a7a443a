"""Posterior draws as an ArviZ InferenceData."""

from typing import Any

import numpy as np
from jaxtyping import Float


def inference_data(
    draws: Float[np.ndarray, "chains draws d"],
    names: tuple[str, ...],
    x: Float[np.ndarray, "n d_x"],
    weights: Float[np.ndarray, " n"],
) -> Any:
    """One variable per parameter; the observations and their weights beside the draws."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs ArviZ: pip install 'nsmbayes[arviz]'") from error
    return arviz.from_dict(
        posterior={name: draws[..., i] for i, name in enumerate(names)},
        observed_data={"x": x, "weight": weights},
        dims={"x": ["observation", "x_dim"], "weight": ["observation"]},
    )
