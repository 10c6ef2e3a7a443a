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
rng = np.random.default_rng(0)
theta = rng.standard_normal((1000, 2))
x = theta + rng.standard_normal((1000, 2))
prior = nsm.GaussianPrior(np.zeros(2), np.ones(2))
settings = nsm.TrainingSettings(max_epochs=2, batch_size=128)
found, parts, constrain = {}, [], jax.lax.with_sharding_constraint


def watched(batches, sharding):
    for array in batches:
        parts.append((array.shape[:2], sharding.shard_shape(array.shape)[:2], len(sharding.device_set)))
    return constrain(batches, sharding)


jax.lax.with_sharding_constraint = watched
for count in (1, 4):
    method = nsm.NSMBayesConj(prior, hidden=8).append_simulations(theta, x)
    method.train(settings=settings, devices=jax.devices()[:count], progress=False)
    found[count] = [*method.history.train_loss, *method.history.validation_loss]
    where = {device for leaf in jax.tree.leaves(method.network) for device in leaf.devices()}
    found[f"devices {count}"] = len(where)
    found[f"mean {count}"] = method.build_posterior(x[:30], beta=1.0).mean.tolist()
found["parts"] = parts
print(json.dumps(found))
"""


@pytest.mark.slow
def test_devices_share_every_batch():
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for (steps, size), part, devices in found["parts"]:  # only what is trained on four devices is divided
        assert devices == 4
        assert part == [steps, size // 4]
    assert 128 in [size for (_, size), _, _ in found["parts"]]  # the density beside the family has its own batches
    assert found["4"] == pytest.approx(found["1"], rel=1e-4)
    assert found["mean 4"] == pytest.approx(found["mean 1"], abs=1e-3)
    assert found["devices 1"] == found["devices 4"] == 1


def test_a_batch_must_be_divisible():
    prior = nsm.GaussianPrior([0.0], [1.0])
    theta = np.linspace(-4, 4, 30)[:, None]
    method = nsm.NLE(prior).append_simulations(theta, theta**3)
    with pytest.raises(InputError, match="a batch of 100 cannot be divided among 3 devices"):
        method.train(settings=nsm.TrainingSettings(batch_size=100), devices=jax.devices() * 3, progress=False)
