"""How far apart two samples are, in standard errors."""

import numpy as np


def largest_z(a, b) -> float:
    """The largest z-score over the columns of two samples, of their means and of their variances."""
    centre = np.concatenate([a, b]).mean(axis=0)
    return max(_z(a, b).max(), _z((a - centre) ** 2, (b - centre) ** 2).max())


def _z(a, b):
    difference = np.abs(a.mean(axis=0) - b.mean(axis=0))
    error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
    return np.where(difference == 0, 0.0, difference / np.maximum(error, 1e-300))
