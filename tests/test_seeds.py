import jax
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes._seeds import seed_key
from nsmbayes.weights import fit_location_scatter

HUGE = (2**32, 2**63, 2**70)


def test_seeds_of_any_size_give_keys_of_their_own():
    seeds = (0, 5, 2**32 - 1, *HUGE, *(seed + 5 for seed in HUGE))
    for wide in (False, True):
        with jax.enable_x64(wide):
            keys = [tuple(np.asarray(jax.random.key_data(seed_key(seed)))) for seed in seeds]
            assert len(set(keys)) == len(seeds)
            assert keys[1] == tuple(np.asarray(jax.random.key_data(jax.random.key(5))))
    assert len({tuple(np.asarray(jax.random.key_data(jax.random.key(seed)))) for seed in (0, 2**32)}) == 1  # why


@pytest.mark.parametrize("seed", HUGE)
def test_seeds_of_any_size_train_and_draw(seed, trained_gnk):
    x = np.random.default_rng(0).standard_normal((30, 2))
    assert fit_location_scatter(x, seed=seed).is_robust
    posterior = trained_gnk.build_posterior(x[:, :1], seed=seed)
    assert posterior.sample((3,), seed=seed).shape == (3, 4)
    method = nsm.NLE(nsm.GaussianPrior([0.0], [1.0]), components=2, hidden=(4,))
    one_epoch = nsm.TrainingSettings(max_epochs=1)
    networks = [
        method.append_simulations(x[:, :1], x[:, 1:]).train(s, settings=one_epoch, progress=False).density
        for s in (seed, 0)
    ]
    leaves = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(network)]) for network in networks]
    assert not np.array_equal(*leaves)
