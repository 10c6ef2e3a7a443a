"""Training time of NSM-Bayes-conj with the paper's stopping rule."""

from collections.abc import Callable

import jax

import nsmbayes as nsm
from bench.timing import Row, timed
from nsmbayes.experiments.paper import GNK

TINY = {"simulations": 2_000, "max_epochs": 2}


def run(simulations: int = 100_000, max_epochs: int = 1000) -> list[Row]:
    """Train on g-and-k simulations with the default and the paper's standardisation; compilation is timed apart."""
    task = nsm.tasks.get("gnk")
    data = task.simulate(simulations, seed=0)
    settings = nsm.TrainingSettings(max_epochs=max_epochs)

    def train(name: str, build: Callable[..., nsm.NSMBayesConj]) -> Row:
        method = build(task.prior).append_simulations(*data)
        jax.clear_caches()
        _, cpu = timed(lambda: method.train(0, settings=settings, progress=False))
        history = method.history
        assert history is not None
        epochs = len(history.train_loss)
        return Row(
            what=f"training, {name}",
            first_s=history.seconds,
            later_s=history.seconds - history.compile_seconds,
            repeats=1,
            detail={
                "cpu_s_with_compilation": cpu,
                "epochs": epochs,
                "s_per_epoch": (history.seconds - history.compile_seconds) / epochs,
                "stopped": str(history.stopped),
                "validation_loss": history.best_validation_loss,
                "paper_s_on_another_machine": GNK["nsm-bayes-conj"].train_s,
            },
        )

    return [train("default", nsm.NSMBayesConj), train("paper's choices", nsm.NSMBayesConj.paper)]
