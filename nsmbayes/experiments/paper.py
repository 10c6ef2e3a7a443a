"""Numbers printed in the paper, for tables that set ours beside them: (mean, standard deviation over 20 runs)."""

from typing import NamedTuple


class Printed(NamedTuple):
    """One row of a table of the paper."""

    mse: tuple[float, float]
    mmd2_ref: tuple[float, float]
    coverage: float | None
    train_s: float | None
    infer_s: float


GNK = {
    "nle": Printed((15.0, 1.8), (0.54, 0.03), 0.0, 93, 36),
    "nsm-bayes": Printed((5.5, 2.4), (0.13, 0.09), 1.0, 93, 163),
    "nsm-bayes-conj": Printed((6.1, 2.9), (0.20, 0.14), 1.0, 176, 5.1),
}
