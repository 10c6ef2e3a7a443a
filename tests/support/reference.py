"""Independent, slow, obvious versions of what the package computes, for tests to compare with."""

import jax
import jax.numpy as jnp
import numpy as np

from nsmbayes.surrogates import ExponentialFamily, NoisyFamily, Standardiser, TanhNetwork


def random_family(d_x, d_theta, *, seed=0, asinh=False, hidden=16, noisy=False) -> ExponentialFamily | NoisyFamily:
    """A family in double precision whose networks, centres and scales are all far from trivial."""
    rng = np.random.default_rng(seed)
    d_in = 2 * d_x if noisy else d_x

    def network(d_out):
        return TanhNetwork(*(jnp.asarray(rng.standard_normal(s)) for s in ((hidden, d_in), (hidden,), (d_out, hidden))))

    def standardiser(d, **kind):
        return Standardiser(jnp.asarray(rng.standard_normal(d)), jnp.asarray(rng.uniform(0.5, 2.0, d)), **kind)

    with jax.enable_x64(True):
        return (NoisyFamily if noisy else ExponentialFamily)(
            T=network(d_theta), b=network(1), scale_x=standardiser(d_x, asinh=asinh),
            scale_theta=standardiser(d_theta, asinh=False),
        )  # fmt: skip


def log_q(family: ExponentialFamily, theta, x):
    """log q(x | theta) up to a constant, written from the definition: exp(T(z)' t + b(z)) |dz/dx|."""
    s = (x - family.scale_x.centre) / family.scale_x.scale
    z = jnp.arcsinh(s) if family.scale_x.asinh else s
    t = (theta - family.scale_theta.centre) / family.scale_theta.scale
    jacobian = -0.5 * jnp.log1p(s**2).sum() if family.scale_x.asinh else 0.0

    def network(net):
        return net.V @ jnp.tanh(net.W @ z + net.c)

    return network(family.T) @ t + network(family.b)[0] + jacobian


def noisy_log_q(family: NoisyFamily, theta, x, h):
    """log q_h(x | theta) up to a constant, from the definition: the networks see z / sqrt(1 + h^2) and log(h) / 2."""
    z = (x - family.scale_x.centre) / family.scale_x.scale
    t = (theta - family.scale_theta.centre) / family.scale_theta.scale
    seen = jnp.concatenate([z / jnp.sqrt(1 + h**2), jnp.log(h) / 2])

    def network(net):
        return net.V @ jnp.tanh(net.W @ seen + net.c)

    return network(family.T) @ t + network(family.b)[0]


def log_transforms(flow, u, t):
    """log N(u_L; 0, I) + log |du_L/du| of a flow's L affine autoregressive transforms given t, from their weights."""
    from paramax import unwrap

    log_prob = 0.0
    for part in unwrap(flow.transform).bijections[::2]:
        *inner, last = part.masked_autoregressive_mlp.layers
        h = jnp.concatenate([u, t])
        for layer in inner:
            h = jnp.tanh(layer.weight @ h + layer.bias)
        mu, s = (last.weight @ h + last.bias).reshape(-1, 2).T
        sigma = jnp.log1p(jnp.exp(s) * jnp.expm1(1 - flow.floor)) + flow.floor
        log_prob -= jnp.log(sigma).sum()
        u = ((u - mu) / sigma)[::-1]
    return log_prob + jax.scipy.stats.norm.logpdf(u).sum()


def nsm_loss_by_autodiff(family, weight, location, scatter, basis, theta, x):
    """L_NSM from the divergence form: mean of |w L' grad log q|^2 + 2 div_y(w^2 grad_y log q), all by autodiff."""
    inverse = jnp.linalg.inv(scatter)
    to_y = jnp.linalg.inv(basis)

    def w2_at(x):
        r = jnp.sqrt((x - location) @ inverse @ (x - location))
        return weight.squared(r)[0]

    def one(x):
        def flow(y):
            point = basis @ y
            return w2_at(point) * jax.grad(lambda y: log_q(family, theta, basis @ y))(y)

        y = to_y @ x
        score = jax.grad(lambda y: log_q(family, theta, basis @ y))(y)
        return w2_at(x) * (score @ score) + 2 * jnp.trace(jax.jacfwd(flow)(y))

    return jax.vmap(one)(x).mean()


def solved(S, b):
    """K^-1 b and log det K, where K is the Cholesky factor of S, entry by entry.

    LAPACK's solvers, of many small matrices at once, can block each other for ever on two cores.
    """
    d, K, y = len(b), {}, []
    for i in range(d):
        for j in range(i + 1):
            left = S[i, j] - sum(K[i, k] * K[j, k] for k in range(j))
            K[i, j] = jnp.sqrt(left) if i == j else left / K[j, j]
        y.append((b[i] - sum(K[i, k] * y[k] for k in range(i))) / K[i, i])
    return jnp.stack(y), sum(jnp.log(K[i, i]) for i in range(d))


def log_normal(z, mean, S):
    """The log density of a Gaussian."""
    y, log_det = solved(S, z - mean)
    return -0.5 * (y @ y + len(z) * jnp.log(2 * jnp.pi)) - log_det
