"""Data of many columns: in a process of its own, since what once went wrong could not be interrupted."""

import os
import subprocess
import sys

import pytest

_SCRIPT = """
import numpy as np
import nsmbayes as nsm

rng = np.random.default_rng(1)  # not the stream of theta
prior = nsm.GaussianPrior(np.zeros(3), np.ones(3))
theta = prior.sample((2000,), seed=0)
brief = nsm.TrainingSettings(batch_size=512, max_epochs=2)
for d in (8, 12, 30):
    x = theta @ rng.standard_normal((3, d)) + rng.standard_normal((2000, d))
    for surrogate in (nsm.MDN(hidden=(32,)), nsm.MDN(hidden=(32,), factor="covariance"))[: 2 if d == 12 else 1]:
        method = nsm.NLE(prior, surrogate=surrogate).append_simulations(theta, x)
        history = method.train(settings=brief, progress=False).history
        assert np.isfinite(history.validation_loss).all(), (d, surrogate)
calibration = nsm.calibration.RootCalibration(bootstraps=10)
method = nsm.NSMBayesConj(prior, noise_levels=(0,), excess=None, calibration=calibration).append_simulations(theta, x)
assert method.train(settings=brief, progress=False).build_posterior(x[:100], seed=0).beta > 0
print("done")
"""
_LIMIT = 300  # seconds until the process is killed; it takes about 30


@pytest.mark.slow
def test_training_and_a_bootstrap_end():
    """Batched LAPACK calls in compiled loops used to block for ever on two cores, from ten columns on."""
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS"}  # without them, as users run it
    own = {name: value for name, value in os.environ.items() if name not in quick}
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=_LIMIT, env=own)
    assert done.stdout.strip() == "done", done.stderr
