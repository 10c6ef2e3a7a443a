"""Training in coordinates of what components share: the same densities, and better ones are found."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.builders import mdn, shaken

import nsmbayes as nsm
from nsmbayes.surrogates import MixtureDensityNetwork, Scalers
from nsmbayes.surrogates.mdn import MixtureEnsemble, unit_spread
from nsmbayes.training import TrainingSettings, fit, fit_density
from nsmbayes.training.sharing import SharingNetwork

D, K = 6, 3


def network(ensemble=1):
    return shaken(mdn(D, factor="precision", components=K, ensemble=ensemble), 0.3)


def mixtures(model: MixtureDensityNetwork):
    t = jnp.asarray(np.random.default_rng(0).standard_normal((5, 2)))
    return jax.vmap(model.mixture)(t)


def nothing(model):
    """All that is trained set to zero."""
    return eqx.tree_at(
        lambda m: (m.network.layers, m.shared),
        model,
        (jax.tree.map(jnp.zeros_like, model.network.layers), jnp.zeros_like(model.shared)),
    )


@pytest.mark.parametrize("ensemble", [1, 2])
def test_it_is_the_same_network(x64, ensemble):
    model = network(ensemble)
    sharing = SharingNetwork.of(model)
    for found, expected in zip(jax.tree.leaves(sharing.whole()), jax.tree.leaves(model), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    own = np.asarray(sharing.network.layers[-1].bias)[..., K : K + K * D].reshape(ensemble, K, D)
    np.testing.assert_allclose(own.mean(axis=1), 0.0, atol=1e-14)  # the mean is shared


@pytest.mark.parametrize("ensemble", [1, 2])
def test_what_is_shared_moves_all_components_alike(x64, ensemble):
    """A step of the shared means is one of every mean, of the shared spreads a common factor, and nothing else."""
    sharing = SharingNetwork.of(network(ensemble))
    before, step = mixtures(sharing.whole()), jnp.arange(1.0, D + 1)
    moved = eqx.tree_at(lambda m: m.shared, sharing, sharing.shared.at[..., :D, -1].add(step))
    after = mixtures(moved.whole())
    np.testing.assert_allclose(after.means, before.means + step, rtol=1e-12)
    np.testing.assert_allclose(after.covariances, before.covariances, rtol=1e-12)
    np.testing.assert_allclose(after.log_weights, before.log_weights, rtol=1e-12)
    # in a network whose components are alike but for their means, other spreads leave them alike
    wider = eqx.tree_at(lambda m: m.shared, nothing(sharing), sharing.shared.at[..., :D, :].set(0.0))
    covariances = np.asarray(mixtures(wider.whole()).covariances).reshape(5, ensemble, K, D, D)
    np.testing.assert_allclose(covariances, np.broadcast_to(covariances[:, :, :1], covariances.shape), rtol=1e-12)
    assert abs(covariances[:, :, 0] - np.eye(D)).max() > 0.05


def test_zero_is_a_standard_normal_and_steps_are_of_one_size(x64):
    model = nothing(SharingNetwork.of(network()))
    found = mixtures(model.whole())
    np.testing.assert_allclose(found.means, 0.0, atol=1e-14)
    np.testing.assert_allclose(found.covariances, np.broadcast_to(np.eye(D), found.covariances.shape), atol=1e-12)

    def factors(bias):
        whole = eqx.tree_at(lambda m: m.shared, model, model.shared.at[:, -1].set(bias)).whole()
        _, means, covariances = whole.mixture(jnp.zeros(2))
        L = jnp.linalg.cholesky(covariances[0])
        return jnp.concatenate([means[0], jnp.log(jnp.diagonal(L)), jnp.linalg.inv(L)[jnp.tril_indices(D, -1)]])

    steps = np.abs(np.asarray(jax.jacobian(factors)(jnp.zeros(model.shared.shape[0]))))
    np.testing.assert_allclose(steps.sum(axis=0), steps.max(axis=0), atol=1e-9)  # each changes one thing
    assert steps.max(axis=0).min() > 0.8
    assert steps.max(axis=0).max() < 1.01


@pytest.mark.parametrize(("floor", "ceiling"), [(0.02, 1e3), (0.5, 1.5)])
def test_a_network_of_precisions_begins_near_a_standard_normal(floor, ceiling):
    config = nsm.MDN(components=K, hidden=(16,), ensemble=2, factor="precision", floor=floor, ceiling=ceiling)
    model = config.build(jax.random.key(0), Scalers.blank(D, 2))
    assert isinstance(model, MixtureEnsemble)
    mean, covariance = jax.vmap(lambda t: model.mixture(t).moments())(jnp.asarray([[0.0, 0.0], [2.0, -2.0]]))
    assert np.abs(mean).max() < 1
    eigenvalues = np.linalg.eigvalsh(covariance)
    assert 0.5 < eigenvalues.min() < eigenvalues.max() < 3


def test_bounds_without_one_have_a_start_within_them():
    assert unit_spread(2.0, 3.0) < 0 < unit_spread(0.1, 0.5)
    assert unit_spread(0.1, 10.0) == pytest.approx(0.0)


def test_training_so_finds_a_better_network():
    """Noise that grows with theta, which all components have to follow; as many steps with and without."""
    rng = np.random.default_rng(0)
    t = rng.standard_normal((3000, 2))
    z = np.sin(2 * t @ rng.standard_normal((2, D))) + np.exp(t[:, :1] - 1) * rng.gumbel(size=(3000, D))
    config = nsm.MDN(components=K, hidden=(16, 16), ensemble=1, factor="precision")
    initial = config.build(jax.random.key(0), Scalers.blank(D, 2))
    options = {
        "settings": TrainingSettings(learning_rate=5e-3, max_epochs=20, weight_decay=0.0, schedule="cosine"),
        "key": jax.random.key(1),
        "progress": False,
    }
    trained, history = fit_density(initial, t, z, **options)
    assert type(trained) is MixtureDensityNetwork
    _, plainly = fit(initial, lambda model, t, z: model.training_loss(t, z), t, z, **options)
    assert history.best_validation_loss < plainly.best_validation_loss - 0.05
