"""What a user has set for JAX and NumPy changes nothing, and is not changed."""

import jax
import numpy as np
import pytest

import nsmbayes as nsm

SETTINGS = {
    "x64": lambda: jax.enable_x64(True),
    "strict types": lambda: jax.numpy_dtype_promotion("strict"),
    "strict shapes": lambda: jax.numpy_rank_promotion("raise"),
    "coarse products": lambda: jax.default_matmul_precision("bfloat16"),
    "other random numbers": lambda: jax.default_prng_impl("rbg"),
    "floating-point errors": lambda: np.errstate(all="raise"),
}


def everything():
    """From simulations to a summary."""
    task = nsm.tasks.get("gaussian")
    method = nsm.NSMBayesConj(task.prior, noise_levels=(0.0,), hidden=4)
    method.append_simulations(*task.simulate(500, seed=0, progress=False))
    method.train(settings=nsm.TrainingSettings(max_epochs=2), progress=False)
    posterior = method.build_posterior(task.observe(40, seed=1).x, seed=0)
    return posterior.summary(), posterior.sample((3,), seed=0).tolist(), posterior.log_prob(posterior.mean).tolist()


@pytest.fixture(scope="module")
def usual():
    return everything()


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_user_change_nothing(name, usual):
    with SETTINGS[name]():
        before = dict(jax.config.values), np.geterr()
        assert everything() == usual
        assert (dict(jax.config.values), np.geterr()) == before


def test_settings_come_back_after_an_error():
    method = nsm.NSMBayesConj(nsm.tasks.get("gaussian").prior)
    with np.errstate(all="raise"):
        with pytest.raises(nsm.InputError):
            method.append_simulations(np.zeros((2, 9)), np.zeros((2, 1)))
        assert set(np.geterr().values()) == {"raise"}
