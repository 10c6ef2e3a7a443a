"""The parameter that best explains the better half of the observations: a robust starting point."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import seed_key
from nsmbayes.losses import Loss
from nsmbayes.priors import UnconstrainedPrior

_FIRST, _ROUNDS, _EACH = 1000, 10, 250  # draws of the prior, rounds of search, draws of each
_ELITE = 50  # best parameters, to which the next round's distribution is fitted; at least five per dimension
_WIDER = 1.3  # factor on the spread of the elite, so that the search does not contract too early


def trimmed_fit(prior: UnconstrainedPrior, loss: Loss, seed: int) -> Float[np.ndarray, " d"]:
    """The theta with about the smallest sum of losses over the better half of the observations.

    The result stays where it is if slightly less than half of the observations move anywhere, one by one or together.
    The search starts with draws of the prior and continues around the best of them, so the result is never far out in
    the prior.
    """
    return search(prior, _better_half, seed, loss)


@double_precision
def search(prior: UnconstrainedPrior, cost: Callable[..., Any], seed: int, *shared: Any) -> Float[np.ndarray, " d"]:
    """The theta with about the smallest `cost(u, prior, *shared)`, a function of the unconstrained u.

    The search starts with draws of the prior and continues with draws of Gaussian distributions fitted to the best
    parameters so far (the cross-entropy method).
    """
    rng = np.random.default_rng(seed)
    pool = np.asarray(prior.sample(seed_key(seed), _FIRST))
    values = map_rows(cost, pool, prior, *shared)
    for _ in range(_ROUNDS):
        best = np.argsort(values)[: max(_ELITE, 5 * pool.shape[1])]
        centre, spread = pool[best].mean(axis=0), np.atleast_2d(np.cov(pool[best].T))
        drawn = rng.multivariate_normal(centre, _WIDER**2 * spread, _EACH, method="eigh")
        pool = np.concatenate([pool[best], drawn])
        values = np.concatenate([values[best], map_rows(cost, drawn, prior, *shared)])
    return np.asarray(prior.constrain(jnp.asarray(pool[values.argmin()])))


def _better_half(u: Float[Array, " d"], prior: UnconstrainedPrior, loss: Loss) -> Float[Array, ""]:
    gains = -loss.each(prior.constrain(u))
    best = jax.lax.top_k(jnp.where(jnp.isnan(gains), -jnp.inf, gains), len(gains) // 2 + 1)[0]
    return jnp.minimum(-best.sum(), 1e300)
