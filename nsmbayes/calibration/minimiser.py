"""theta_hat, the minimiser of the conjugate loss, stabilised by a ridge."""

from typing import Literal

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes.losses import Quadratic

Ridge = Literal["trace", "condition"]


def loss_minimiser(
    average: Quadratic, *, ridge: Ridge = "trace", target_condition: float = 1e4
) -> Float[np.ndarray, " d"]:
    """The theta that minimises theta' A theta + 2 theta' B + lambda |theta|^2, that is -(A + lambda I)^-1 B.

    ridge="trace" takes the paper's lambda = 10^-2 tr(A) / d + 10^-12; ridge="condition" the smallest lambda with which
    the condition number of A + lambda I is at most `target_condition`. (The paper writes the penalty as
    lambda / 2 |theta|^2, whose minimiser would have lambda / 2 in the matrix; the formula with lambda is used here.)
    """
    d = len(average.B)
    if _checks.choice(ridge, "ridge", ("trace", "condition")) == "trace":
        penalty = 1e-2 * np.trace(average.A) / d + 1e-12
    else:
        eigenvalues = np.linalg.eigvalsh(average.A)
        low, high = max(eigenvalues[0], 0.0), eigenvalues[-1]
        penalty = max(0.0, (high - target_condition * low) / (target_condition - 1))
    return -np.linalg.solve(average.A + penalty * np.eye(d), average.B)
