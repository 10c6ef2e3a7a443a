"""Time for calibration and posterior together, with Algorithm 1 and with the root search."""

import nsmbayes as nsm
from bench.setup import brief_method, contaminated
from bench.timing import Row, side_by_side
from nsmbayes.calibration import RootCalibration, StochasticCalibration
from nsmbayes.experiments.paper import GNK

TINY = {"n": 40, "bootstraps": 5, "steps": 2, "root_bootstraps": 5, "repeats": 2}


def run(
    n: int = 100, bootstraps: int = 100, steps: int = 20, root_bootstraps: int = 400, repeats: int = 20
) -> list[Row]:
    """`build_posterior` on new data, with location and scatter fitted to each resample."""
    trained = brief_method()
    data = contaminated(repeats + 1, n, seed=1)

    def method(calibration: RootCalibration | StochasticCalibration) -> nsm.NSMBayesConj:
        return nsm.NSMBayesConj(trained.prior, calibration=calibration).adopt(trained)

    stochastic = method(StochasticCalibration(bootstraps=bootstraps, steps=steps))
    root = method(RootCalibration(bootstraps=root_bootstraps))
    rows = side_by_side(
        {
            f"Algorithm 1, B = {bootstraps}, T = {steps}": lambda i: stochastic.build_posterior(data[i], seed=i),
            f"root search, B = {root_bootstraps}": lambda i: root.build_posterior(data[i], seed=i),
        },
        repeats=repeats,
    )
    rows[0].detail["paper_s_on_another_machine"] = GNK["nsm-bayes-conj"].infer_s
    return rows
