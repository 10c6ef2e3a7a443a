"""Many posteriors in one process, then in eight threads at once: memory stays flat, and results are the same."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil

import nsmbayes as nsm
from attacks.result import Result

_THREADS = 8
_DATASETS = 10  # different ones, taken in turn
_WARM = 0.2  # of the posteriors, before memory is looked at: compiled programs are kept
_FLAT_MB = 50.0


def run(count: int, seed: int) -> Result:
    """Posteriors of NSM-Bayes and NSM-Bayes-conj of a few data sets, again and again."""
    result, rng = Result(), np.random.default_rng(seed)
    prior = nsm.GaussianPrior(np.zeros(2), np.eye(2))
    theta = prior.sample(2000, seed=seed)
    x = theta[:, :1] + np.exp(theta[:, 1:]) * rng.standard_normal((2000, 1))
    settings = nsm.TrainingSettings(max_epochs=5)
    methods = [
        kind(prior).append_simulations(theta, x).train(seed, settings=settings, progress=False)
        for kind in (nsm.NSMBayes, nsm.NSMBayesConj)
    ]
    datasets = rng.standard_normal((_DATASETS, 50, 1))

    def mean(number: int) -> np.ndarray:
        return methods[number % 2].build_posterior(datasets[number // 2 % _DATASETS], beta=0.5, seed=0).mean

    process, memory, known = psutil.Process(), [], {}
    with warnings.catch_warnings():  # five epochs are few, and chains may say so
        warnings.simplefilter("ignore", UserWarning)
        for number in range(count):
            found = mean(number)
            memory.append(process.memory_info().rss / 2**20)
            _compare(result, known, number, found, "one after the other")
        with ThreadPoolExecutor(_THREADS) as pool:
            for number, found in enumerate(pool.map(mean, range(count))):
                _compare(result, known, number, found, "in threads")
    growth = max(memory) - memory[int(_WARM * count)]
    result.memory_mb = growth
    if growth > _FLAT_MB:
        result.fail("memory", f"grew by {growth:.0f} MB after the first fifth")
    return result


def _compare(result: Result, known: dict[int, np.ndarray], number: int, found: np.ndarray, how: str) -> None:
    first = known.setdefault(number % (2 * _DATASETS), found)
    if np.array_equal(first, found):
        result.outcomes[how] += 1
    else:
        result.fail(f"posterior {number}, {how}", f"{found} was {first} before")
