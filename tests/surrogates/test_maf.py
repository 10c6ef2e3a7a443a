import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.surrogates import MaskedAutoregressiveFlow, Standardiser, init_masked_autoregressive_flow
from nsmbayes.training import TrainingSettings, fit


def identity(d):
    return Standardiser(jnp.zeros(d), jnp.ones(d), asinh=False)


def new_flow(d_x, d_theta=2, **options) -> MaskedAutoregressiveFlow:
    return init_masked_autoregressive_flow(jax.random.key(0), identity(d_x), identity(d_theta), **options)


def shaken(model, size, seed=0):
    """The model with noise on every weight, so that nothing it computes is near its simple initial value."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: leaf + size * rng.standard_normal(leaf.shape) if eqx.is_inexact_array(leaf) else leaf,
        model,
        is_leaf=lambda node: isinstance(node, Standardiser),
    )


def test_one_dimension_is_refused():
    with pytest.raises(nsm.InputError, match=r"conditional Gaussian.*surrogate='mdn'"):
        new_flow(1)


def test_in_one_dimension_the_flow_is_gaussian(x64):
    """Why it is refused: whatever the weights, the score is linear in x and the Laplacian constant."""
    flow = shaken(new_flow(1, allow_one_dimension=True, transforms=2, hidden=8, depth=1), 1.0)
    x, theta = jnp.linspace(-4, 4, 5)[:, None], jnp.array([0.5, -1.0])
    score, laplacian = jax.jit(jax.vmap(flow.derivatives, (None, 0, None)))(theta, x, jnp.eye(1))
    np.testing.assert_allclose(laplacian, laplacian[0], rtol=1e-12)
    np.testing.assert_allclose(jnp.diff(score[:, 0]), 2 * laplacian[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "relu"}, "not twice differentiable.*two derivatives.*'tanh'"),
        ({"activation": "elu"}, "not twice differentiable"),
        ({"activation": "sine"}, "must be one of 'tanh'"),
        ({"transformer": "rational_quadratic_spline"}, "one continuous derivative.*two derivatives"),
        ({"transformer": "cubic"}, "must be one of 'affine'"),
        ({"floor": 0.0}, "`floor` must lie between 0 and 1"),
        ({"hidden": 2}, "`hidden` must be at least 3"),
        ({"depth": 0}, "`depth` must be at least 1"),
        ({"transforms": 0}, "`transforms` must be at least 1"),
        ({"laplacian": "hutchinson"}, "more than 10 dimensions"),
        ({"laplacian": "approximate"}, "`laplacian` must be one of"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(options, message):
    with pytest.raises(nsm.InputError, match=message):
        new_flow(3, **options)


def test_asinh_is_refused():
    with pytest.raises(ValueError, match="affine"):
        init_masked_autoregressive_flow(
            jax.random.key(0), Standardiser(jnp.zeros(2), jnp.ones(2), asinh=True), identity(1), transforms=1
        )


def test_without_flowjax_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "flowjax.bijections", None)
    with pytest.raises(ImportError, match=r"pip install 'nsmbayes\[flows\]'"):
        new_flow(2)


@pytest.mark.parametrize("activation", ["tanh", "silu"])
def test_density_integrates_to_one(x64, activation):
    """On a grid of sinh-spaced points, 500 x 500; error below 1e-5."""
    flow = shaken(new_flow(2, transforms=2, hidden=8, depth=1, activation=activation), 0.3)
    n, v = 500, jnp.linspace(-8, 8, 500)
    x = jnp.stack(jnp.meshgrid(jnp.sinh(v), jnp.sinh(v), indexing="ij"), axis=-1).reshape(-1, 2)
    log_q = jax.jit(lambda x: flow.log_probs(jnp.array([0.5, -0.5]), x))(x)
    integral = jnp.trapezoid(jnp.trapezoid(jnp.exp(log_q).reshape(n, n) * jnp.cosh(v), v) * jnp.cosh(v), v)
    np.testing.assert_allclose(integral, 1.0, atol=1e-5)


def test_a_network_that_says_nothing_is_a_standard_normal():
    flow = jax.tree.map(lambda a: 0 * a if eqx.is_inexact_array(a) else a, new_flow(3, transforms=2).transform)
    u, log_det = flow.transform_and_log_det(jnp.array([1.0, -2.0, 3.0]), jnp.ones(2))
    np.testing.assert_allclose(u, [1.0, -2.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(log_det, 0.0, atol=1e-6)


def test_squash_stops_extrapolation_in_theta(x64):
    """Beyond the simulations a squashed theta is nearly constant; the paper's form goes on changing."""
    x, thetas = jnp.array([0.3, -0.4]), jnp.array([[20.0, 20.0], [1e6, 1e6]])
    for squash in (True, False):
        flow = shaken(new_flow(2, transforms=2, hidden=8, depth=1, squash=squash), 0.1)
        near, far = jax.jit(jax.vmap(flow.log_prob, (0, None)))(thetas, x)
        assert np.isfinite(far)
        assert (abs(near - far) < 1e-4) == squash


def test_the_score_matching_loss_has_a_gradient_in_theta(x64):
    """What gradient-based samplers ask for: three derivatives of the network. Against central differences."""
    flow = shaken(new_flow(2, hidden=8, transforms=2, depth=1), 0.3)
    x, theta, step = jnp.array([0.3, -0.4]), jnp.array([0.5, -1.0]), 1e-5

    @jax.jit
    def loss(theta):
        score, laplacian = flow.derivatives(theta, x, jnp.eye(2))
        return score @ score + 2 * laplacian

    differences = [(loss(theta + step * e) - loss(theta - step * e)) / (2 * step) for e in jnp.eye(2)]
    np.testing.assert_allclose(jax.grad(loss)(theta), differences, rtol=1e-6)


def test_hutchinson_estimates_the_exact_laplacian(x64):
    """Its error is 2 sum_{i<j} A_ij c_ij, A = D' H D and c_ij the mean product of signs, so that its variance over the
    choice of probes is 2 sum_{i != j} A_ij^2 / probes. Both the spread and the mean over 300 choices are checked."""
    d, probes, choices = 12, 6, 300
    exact = shaken(new_flow(d, hidden=12, depth=1, transforms=2), 0.3)
    template = new_flow(d, hidden=12, depth=1, transforms=2, laplacian="hutchinson", probes=probes)
    assert template.probes.shape == (probes, d)
    rng = np.random.default_rng(1)
    theta, x = jnp.ones(2), jnp.asarray(rng.standard_normal(d))
    basis = jnp.asarray(np.eye(d) + 0.2 * rng.standard_normal((d, d)))
    signs = jax.random.rademacher(jax.random.key(3), (choices, probes, d), jnp.int8)

    @jax.jit
    @jax.vmap
    def estimated(signs):
        flow = eqx.tree_at(lambda flow: (flow.transform, flow.probes), template, (exact.transform, signs))
        return flow.derivatives(theta, x, basis)

    score, laplacian = eqx.filter_jit(exact.derivatives)(theta, x, basis)
    A = basis.T @ jax.jit(jax.hessian(lambda x: exact.log_prob(theta, x)))(x) @ basis
    std = np.sqrt(2 * (np.sum(A**2) - np.sum(np.diag(A) ** 2)) / probes)
    scores, laplacians = estimated(signs)
    np.testing.assert_allclose(laplacian, np.trace(A), rtol=1e-9)
    np.testing.assert_allclose(scores[0], score, rtol=1e-9)
    assert abs(laplacians.mean() - laplacian) < 4 * std / np.sqrt(choices)
    assert 0.8 < laplacians.std() / std < 1.2


# x = (theta + e_1, e_1 / 2 + 0.7 (e_1^2 - 1) + theta / 2 + 0.3 e_2): a banana. Given theta its entropy is
# log(2 pi e) + log(0.3), and that of the Gaussian with its covariance, the best there is, log(2 pi e) + log(det) / 2.
def _bananas(rng, m):
    theta, e = rng.standard_normal((m, 1)), rng.standard_normal((m, 2))
    bent = 0.5 * e[:, :1] + 0.7 * (e[:, :1] ** 2 - 1) + 0.3 * e[:, 1:]
    return theta, np.hstack([theta + e[:, :1], theta / 2 + bent])


def _loss(model, t, z):
    return -model.network_log_prob(t, z)


@pytest.fixture(scope="module")
def trained():
    settings = TrainingSettings(
        learning_rate=5e-3, weight_decay=1e-5, batch_size=256, max_epochs=8, patience=8, schedule="cosine"
    )
    flow = new_flow(2, 1, transforms=3, hidden=32)
    signs = jnp.array([[1, 1], [1, -1]], jnp.int8)  # all there are: with these Hutchinson's Laplacian is exact
    flow = eqx.tree_at(lambda flow: flow.probes, flow, signs, is_leaf=lambda node: node is None)
    theta, x = _bananas(np.random.default_rng(0), 20_000)
    return flow, fit(flow, _loss, theta, x, settings=settings, key=jax.random.key(1), progress=False)[0]


def test_training_beats_the_best_gaussian(trained):
    """Within 0.1 nats of the exact density, on fresh simulations; the best Gaussian is 1.2 nats away."""
    _, flow = trained
    theta, x = (jnp.asarray(a, jnp.float32) for a in _bananas(np.random.default_rng(1), 20_000))
    loss = -jax.jit(jax.vmap(flow.log_prob))(theta, x).mean()
    exact = np.log(2 * np.pi * np.e) + np.log(0.3)
    best_gaussian = np.log(2 * np.pi * np.e) + 0.5 * np.log(0.25 + 2 * 0.49 + 0.09 - 0.25)
    assert best_gaussian > exact + 1.2
    assert exact - 0.02 < loss < exact + 0.1


def test_training_changes_the_weights_and_nothing_else(trained):
    before, after = trained
    assert jax.tree.structure(before) == jax.tree.structure(after)
    changed = {True: 0, False: 0}
    for a, b in zip(jax.tree.leaves(before.transform), jax.tree.leaves(after.transform), strict=True):
        if eqx.is_array(a):
            assert a.dtype == b.dtype
            assert (np.asarray(a) != np.asarray(b)).any() == eqx.is_inexact_array(a)
            changed[eqx.is_inexact_array(a)] += 1
    assert changed == {True: 3 * 6, False: 3 * 3}  # weights and biases of 3 layers; masks of as many
    for part in ("scale_x", "scale_theta", "probes"):
        assert eqx.tree_equal(getattr(before, part), getattr(after, part))


def test_after_training_the_transforms_are_still_autoregressive(trained):
    """Coordinate i of one transform's output depends on coordinates up to i of its input, and on theta."""
    for layer in trained[1].transform.bijections[::2]:
        jacobian = jax.jit(jax.jacobian(lambda z, layer=layer: layer.transform(z, jnp.ones(1))))(jnp.array([0.3, -0.5]))
        assert jacobian[0, 1] == 0
        assert jacobian[1, 0] != 0


def test_double_precision_refines_single_precision(trained):
    @eqx.filter_jit
    def log_prob_and_derivatives(flow):
        theta, x = jnp.array([0.4], float), jnp.array([0.3, -0.8], float)
        return flow.log_prob(theta, x), *flow.derivatives(theta, x, jnp.eye(2))

    single = log_prob_and_derivatives(trained[1])
    with jax.enable_x64(True):
        flow = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64) if eqx.is_inexact_array(a) else a, trained[1])
        double = log_prob_and_derivatives(flow)
    for a, b in zip(single, double, strict=True):
        assert (a.dtype, b.dtype) == (jnp.float32, jnp.float64)
        np.testing.assert_allclose(a, b, rtol=1e-4)
