import numpy as np
import pytest

import nsmbayes as nsm


@pytest.mark.parametrize("whiten", [True, False])
def test_a_batch_is_its_data_sets_one_by_one(random_method, whiten):
    method = random_method(1, 3, whiten=whiten)
    x = np.random.default_rng(0).standard_normal((7, 40, 1))
    x[:, 0] = 100.0
    batch = method.build_posteriors(x, beta=0.5)
    for i, data in enumerate(x):
        alone = method.build_posterior(data, beta=0.5)
        np.testing.assert_allclose(batch.mean[i], alone.mean, rtol=1e-8)
        np.testing.assert_allclose(batch.covariance[i], alone.covariance, rtol=1e-8)
    assert len(batch) == 7
    assert batch.sample(11, seed=0).shape == (7, 11, 3)


def test_more_data_sets_than_one_compiled_call_takes(random_method):
    method = random_method(1, 2)
    x = np.random.default_rng(0).standard_normal((2003, 12, 1))
    batch = method.build_posteriors(x, beta=0.5)
    np.testing.assert_allclose(batch.mean[2001], method.build_posterior(x[2001], beta=0.5).mean, rtol=1e-8)


def test_draws_have_the_moments_of_their_own_posterior(random_method):
    """Within 5 standard errors: false alarm below 1e-4 over all coordinates."""
    batch = random_method(1, 2).build_posteriors(np.random.default_rng(0).standard_normal((4, 30, 1)), beta=0.5)
    draws = batch.sample(40_000, seed=1)
    sd = np.sqrt(np.diagonal(batch.covariance, axis1=1, axis2=2))
    assert (np.abs(draws.mean(axis=1) - batch.mean) < 5 * sd / 200).all()
    np.testing.assert_allclose(draws.std(axis=1), sd, rtol=0.03)


def test_tied_data_sets_are_named(random_method):
    x = np.random.default_rng(0).standard_normal((4, 30, 1))
    x[2] = 1.0
    with pytest.raises(nsm.InputError, match=r"first: 2"):
        random_method(1, 2).build_posteriors(x, beta=0.5)
