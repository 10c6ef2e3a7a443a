"""Summary statistics of a data set."""

import numpy as np
from jaxtyping import Float


def quantile_summaries(x: Float[np.ndarray, "*sets n d_x"]) -> Float[np.ndarray, "*sets s"]:
    """Four statistics of each column, from its quantiles: median, spread between the quartiles, skewness and tails.

    With q_p the p-th percentile: q_50, q_75 - q_25, (q_90 + q_10 - 2 q_50) / (q_90 - q_10) and
    (q_90 - q_10) / (q_75 - q_25). The paper uses them for g-and-k data.

    Example:
        >>> quantile_summaries(np.linspace(-1, 1, 101)[:, None]).round(3).tolist()
        [0.0, 1.0, 0.0, 1.6]
    """
    q10, q25, q50, q75, q90 = np.quantile(x, [0.10, 0.25, 0.50, 0.75, 0.90], axis=-2)
    columns = [q50, q75 - q25, (q90 + q10 - 2 * q50) / (q90 - q10), (q90 - q10) / (q75 - q25)]
    return np.concatenate(columns, axis=-1)
