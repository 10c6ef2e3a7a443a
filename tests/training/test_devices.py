"""Training on several devices: simulated ones, in a process of its own, since their number is fixed when JAX starts."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.errors import InputError

CODE = """
import json
import jax
import numpy as np
import nsmbayes as nsm
from nsmbayes.training import loop

rng = np.random.default_rng(0)
theta = rng.standard_normal((1000, 2))
x = theta + rng.standard_normal((1000, 2))
prior = nsm.GaussianPrior(np.zeros(2), np.ones(2))
settings = nsm.TrainingSettings(max_epochs=2, batch_size=128)
found = {}
for count in (1, 4):
    method = nsm.NSMBayesConj(prior, hidden=8).append_simulations(theta, x)
    method.train(settings=settings, devices=jax.devices()[:count], progress=False)
    found[count] = [*method.history.train_loss, *method.history.validation_loss]
    where = {device for leaf in jax.tree.leaves(method.network) for device in leaf.devices()}
    found[f"devices {count}"] = len(where)
    found[f"mean {count}"] = method.build_posterior(x[:30], beta=1.0).mean.tolist()
batch = loop._mesh(jax.devices(), settings)
found["mesh"] = batch.size
print(json.dumps(found))
"""


@pytest.mark.slow
def test_devices_share_every_batch():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["mesh"] == 4
    assert found["4"] == pytest.approx(found["1"], rel=1e-4)
    assert found["mean 4"] == pytest.approx(found["mean 1"], abs=1e-3)
    assert found["devices 1"] == found["devices 4"] == 1


def test_a_batch_must_be_divisible():
    prior = nsm.GaussianPrior([0.0], [1.0])
    theta = np.linspace(-4, 4, 30)[:, None]
    method = nsm.NLE(prior).append_simulations(theta, theta**3)
    with pytest.raises(InputError, match="a batch of 100 cannot be divided among 3 devices"):
        method.train(settings=nsm.TrainingSettings(batch_size=100), devices=jax.devices() * 3, progress=False)
