"""The masked autoregressive flow: affine autoregressive transforms of a standard normal (Proposition 3), in FlowJAX."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int8, PRNGKeyArray

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.surrogates.base import Density, Derivatives, Frame
from nsmbayes.surrogates.scaling import Standardiser, squash

ACTIVATIONS = {"tanh": jnp.tanh, "softplus": jax.nn.softplus, "gelu": jax.nn.gelu, "silu": jax.nn.silu}
ALWAYS_EXACT = 10  # up to this d_x the Laplacian is always exact: d_x Hessian-vector products are cheap

_KINKED = ("relu", "leaky_relu", "relu6", "elu", "celu", "selu", "hard_tanh", "hard_sigmoid", "hard_silu")


class MaskedAutoregressiveFlow(Density):
    """log q(x | theta) = log N(u; 0, I) + log |du/dz|, with z the standardised x and u = f_L(... f_1(z)).

    Each transform is u_i = (z_i - mu_i(z_<i, t)) / sigma_i(z_<i, t), after which the order of the coordinates is
    reversed. mu and the raw scale s are the outputs of one masked network; sigma = softplus(s) + floor. theta is
    standardised and, with `squash`, bounded smoothly, 3 tanh(t / 3), so that the network does not extrapolate in theta.
    """

    transform: Any  # a FlowJAX bijection from z to u; the type is not named, so that FlowJAX is imported only if needed
    scale_x: Standardiser
    scale_theta: Standardiser
    probes: Int8[Array, "k d_x"] | None  # random signs for an estimated Laplacian; integers, so they are not trained
    squash: bool = eqx.field(static=True)
    activation: str = eqx.field(static=True)
    floor: float = eqx.field(static=True)

    def __check_init__(self):
        if self.scale_x.asinh:
            raise ValueError("x must be standardised by an affine map: the derivatives in x assume one.")

    def network_log_prob(self, t: Float[Array, " d_theta"], z: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(z | t) in the network's coordinates."""
        return flow_log_prob(self.transform, z, squash(t) if self.squash else t)

    def log_prob(self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"]) -> Float[Array, ""]:
        """log q(x | theta)."""
        return self.network_log_prob(self.scale_theta(theta), self.scale_x(x)) - jnp.log(self.scale_x.scale).sum()

    def derivatives(
        self, theta: Float[Array, " d_theta"], x: Float[Array, " d_x"], basis: Float[Array, "d_x p"]
    ) -> Derivatives:
        """Score and Laplacian at x along the columns of `basis`, by forward-over-reverse differentiation.

        With D = dz/dy, the Laplacian is the sum of v' H v over the columns v of D. With probes it is estimated by the
        mean over v = D r, for vectors r of random signs, which is unbiased.
        """
        t, z, D = self.scale_theta(theta), self.scale_x(x), basis / self.scale_x.scale[:, None]
        directions = D.T if self.probes is None else self.probes.astype(D.dtype) @ D.T

        def gradient(z):
            return jax.grad(self.network_log_prob, 1)(t, z)

        g, Hv = jax.vmap(lambda v: jax.jvp(gradient, (z,), (v,)), out_axes=(None, 0))(directions)
        curvatures = (directions * Hv).sum(axis=1)
        return Derivatives(D.T @ g, curvatures.sum() if self.probes is None else curvatures.mean())

    def log_probs(self, theta: Float[Array, " d_theta"], x: Float[Array, "n d_x"]) -> Float[Array, " n"]:
        """log q(x_i | theta) of many points."""
        if x.shape[1] > 1:
            return super().log_probs(theta, x)
        frame = Frame(self.scale_x.centre, jnp.diag(self.scale_x.scale))
        slope, curvature = self.derivatives_at(theta, frame, 0.0)(jnp.zeros((1, 1), x.dtype))
        y = self.scale_x(x)[:, 0]
        return self.log_prob(theta, frame.offset) + y * (slope[0, 0] + 0.5 * curvature[0] * y)

    @double_precision
    def draw(
        self, theta: Float[np.ndarray, "k d_theta"], each: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "k each d_x"]:
        """`each` draws of x at every theta, by the inverse of the transform; an `InputError` if it has no inverse."""
        if not hasattr(self.transform, "inverse_and_log_det"):
            return super().draw(theta, each, rng)
        u = rng.standard_normal((len(theta), each, len(self.scale_x.scale)))
        z = np.asarray(_inverted(self, jnp.asarray(theta), jnp.asarray(u)))
        return np.asarray(self.scale_x.centre) + np.asarray(self.scale_x.scale) * z

    def derivatives_at(
        self, theta: Float[Array, " d_theta"], frame: Frame, h: Float[Array, ""] | float
    ) -> Callable[[Float[Array, "n d_x"]], Derivatives]:
        """Derivatives as a function of many points y."""
        if len(frame.offset) > 1:
            return super().derivatives_at(theta, frame, h)
        # In one dimension, the flow is Gaussian and log q a parabola, so its derivatives at one point determine it.
        score, laplacian = self.derivatives(theta, frame.offset, frame.basis)
        return lambda y: Derivatives(score + laplacian * y, jnp.full(len(y), laplacian))


@eqx.filter_jit
def _inverted(
    flow: MaskedAutoregressiveFlow, theta: Float[Array, "k d_theta"], u: Float[Array, "k each d_x"]
) -> Float[Array, "k each d_x"]:
    def one(theta: Float[Array, " d_theta"], u: Float[Array, "each d_x"]) -> Float[Array, "each d_x"]:
        t = flow.scale_theta(theta)
        condition = squash(t) if flow.squash else t
        return jax.vmap(lambda each: flow.transform.inverse_and_log_det(each, condition)[0])(u)

    return jax.vmap(one)(theta, u)


def init_masked_autoregressive_flow(
    key: PRNGKeyArray,
    scale_x: Standardiser,
    scale_theta: Standardiser,
    *,
    transforms: int = 5,
    hidden: int = 50,
    depth: int = 2,
    floor: float = 0.01,
    activation: str = "tanh",
    transformer: str = "affine",
    squash: bool = True,
    laplacian: str = "exact",
    probes: int = 8,
    allow_one_dimension: bool = False,
) -> MaskedAutoregressiveFlow:
    """An untrained flow, close to a standard normal in standardised x.

    Args:
        key: for the weights and the probes.
        scale_x: standardiser of x, affine.
        scale_theta: standardiser of theta.
        transforms: number of autoregressive transforms.
        hidden: width of the hidden layers of each transform.
        depth: number of hidden layers of each transform.
        floor: smallest scale sigma of each transform: no peak is higher than that of a Gaussian with standard deviation
            floor^transforms in standardised x.
        activation: "tanh", the only one that Proposition 3 covers, or another smooth one of `ACTIVATIONS`.
        transformer: "affine"; splines are not allowed.
        squash: whether to bound theta before it enters the network, unlike in the paper.
        laplacian: "exact", or "hutchinson": estimated with fixed random signs, for more than `ALWAYS_EXACT` dimensions.
        probes: number of random sign vectors.
        allow_one_dimension: accept d_x = 1, where the flow is a conditional Gaussian, for comparison with the paper.
    """
    d_x, d_theta = len(scale_x.scale), len(scale_theta.scale)
    if not allow_one_dimension:
        require_several_dimensions(d_x)
    checks.integer(transforms, "transforms", at_least=1)
    checks.integer(depth, "depth", at_least=1)
    if checks.integer(hidden, "hidden", at_least=1) < d_x:
        raise InputError(
            f"`hidden` must be at least {d_x}, the dimension of x: with fewer units the network ignores some "
            f"coordinates. Got {hidden}."
        )
    if not 0 < checks.real(floor, "floor") < 1:
        raise InputError(f"`floor` must lie between 0 and 1, in units of the standardised x; got {floor}.")
    _check_smooth(activation, transformer)
    key_net, key_probes = jax.random.split(key)
    signs = _draw_probes(key_probes, d_x, laplacian, probes)
    return MaskedAutoregressiveFlow(
        transform=affine_autoregressive(
            key_net, d_x, d_theta, transforms=transforms, hidden=hidden, depth=depth, floor=floor, activation=activation
        ),
        scale_x=scale_x,
        scale_theta=scale_theta,
        probes=signs,
        squash=squash,
        activation=activation,
        floor=float(floor),
    )


def require_several_dimensions(d_x: int) -> None:
    """Raise an error for d_x = 1, where an affine autoregressive flow is a conditional Gaussian."""
    if d_x == 1:
        raise InputError(
            "`surrogate` 'maf' cannot be used when x has one dimension: with no other coordinate to condition on, an "
            "affine autoregressive flow is a conditional Gaussian, which has no skewness and no heavy tails. Use "
            "surrogate='mdn'."
        )


def _check_smooth(activation: str, transformer: str) -> None:
    if activation in _KINKED:
        raise InputError(
            f"`activation` {activation!r} is not twice differentiable, and score matching needs two derivatives of "
            f"log q. Choose one of {', '.join(map(repr, ACTIVATIONS))}."
        )
    checks.choice(activation, "activation", tuple(ACTIVATIONS))
    if "spline" in str(transformer):
        raise InputError(
            f"`transformer` {transformer!r} is not twice differentiable (a rational quadratic spline has one "
            "continuous derivative), and score matching needs two derivatives of log q. Choose 'affine', or "
            "surrogate='mdn' for marginals that an affine flow cannot represent."
        )
    checks.choice(transformer, "transformer", ("affine",))


def _draw_probes(key: PRNGKeyArray, d_x: int, laplacian: str, probes: int) -> Int8[Array, "k d_x"] | None:
    if checks.choice(laplacian, "laplacian", ("exact", "hutchinson")) == "exact":
        return None
    if d_x <= ALWAYS_EXACT:
        raise InputError(
            f"`laplacian` 'hutchinson' is for more than {ALWAYS_EXACT} dimensions; x has {d_x}, where 'exact' is cheap."
        )
    return jax.random.rademacher(key, (checks.integer(probes, "probes", at_least=1), d_x), jnp.int8)


def affine_autoregressive(
    key: PRNGKeyArray,
    d_x: int,
    d_theta: int,
    *,
    transforms: int,
    hidden: int,
    depth: int,
    floor: float,
    activation: str,
) -> Any:
    """Affine autoregressive transforms of d_x coordinates, given d_theta inputs: a FlowJAX bijection from z to u."""
    to_u = standardising_map(floor)
    from flowjax.bijections import Chain, Flip, MaskedAutoregressive

    layers = []
    for layer_key in jax.random.split(key, transforms):
        layer = MaskedAutoregressive(
            layer_key,
            transformer=to_u,
            dim=d_x,
            cond_dim=d_theta,
            nn_width=hidden,
            nn_depth=depth,
            nn_activation=ACTIVATIONS[activation],
        )
        layers += [layer, Flip((d_x,))]
    return Chain(layers)


def flow_log_prob(transform: Any, z: Float[Array, " d"], condition: Float[Array, " k"]) -> Float[Array, ""]:
    """log N(u; 0, I) + log |du/dz| with u the transform of z by a FlowJAX bijection."""
    u, log_det = transform.transform_and_log_det(z, condition)
    return log_det - 0.5 * (u @ u) - 0.5 * len(z) * math.log(2 * math.pi)


def standardising_map(floor: float) -> Any:
    """u = (z - mu) / sigma with sigma = softplus(s) + floor > floor, which bounds the peaks of the density.

    Network outputs of zero give the identity.
    """
    try:
        from flowjax.bijections import Affine, Invert
        from paramax import Parameterize
    except ModuleNotFoundError as error:
        raise ImportError("Normalising flows need FlowJAX: pip install 'nsmbayes[flows]'.") from error

    # FlowJAX stores the parameters for a zero network output in a closure, where their precision cannot be changed.
    # Zeros are the same in every precision: here they mean mu = 0 and sigma = softplus(shift) + floor = 1.
    zero, shift = jnp.zeros((), jnp.float32), math.log(math.expm1(1 - floor))
    sigma = Parameterize(lambda s: jax.nn.softplus(s + shift) + floor, zero)
    return Invert(eqx.tree_at(lambda a: (a.loc, a.scale), Affine(), (zero, sigma)))
