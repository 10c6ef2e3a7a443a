"""Data of many columns: in processes of their own, since what once went wrong could not be interrupted."""

import subprocess
import sys

import pytest

_SCRIPT = """
import numpy as np
import nsmbayes as nsm

d = {d}
rng = np.random.default_rng(0)
prior = nsm.GaussianPrior(np.zeros(3), np.ones(3))
theta = prior.sample((2000,), seed=0)
x = theta @ rng.standard_normal((3, d)) + rng.standard_normal((2000, d))
method = nsm.{method}.append_simulations(theta, x)
method.train(settings=nsm.TrainingSettings(batch_size=512, max_epochs=2), progress=False)
print(method.{last})
"""
_LIMIT = 240  # seconds until the process is killed; it takes about 20


def _run(**parts):
    script = _SCRIPT.format(**parts)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=_LIMIT)


@pytest.mark.parametrize("d", [8, 12])
def test_training_ends(d):
    """Batched LAPACK calls in the training loop used to block for ever on two cores, from ten columns on."""
    done = _run(d=d, method="NSMBayes(prior)", last="history.validation_loss")
    assert done.returncode == 0, done.stderr
    assert "nan" not in done.stdout


def test_a_bootstrap_of_thirty_columns_ends():
    done = _run(d=30, method="NSMBayesConj(prior, noise_levels=(0,))", last="build_posterior(x[:100], seed=0).beta > 0")
    assert done.stdout.strip() == "True", done.stderr
