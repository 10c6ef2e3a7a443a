"""Pseudo-marginal Metropolis-Hastings: sampling with a loss that can only be estimated and has no gradient."""

from collections.abc import Callable

import jax
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes._internal import checks

_WANTED = 0.15  # target acceptance rate for tuning the proposal; with noise, a lower rate than usual is best
_FORGETTING = 0.6

Loss = Callable[[Float[np.ndarray, "chains d"], Key[Array, "chains k"]], Float[np.ndarray, " chains"]]


def sample_pseudo_marginal(
    log_prob: Callable[[Float[np.ndarray, "chains d"]], Float[np.ndarray, " chains"]],
    loss: Loss,
    start: Float[np.ndarray, "chains d"],
    root: Float[np.ndarray, "d d"],
    *,
    simulations: int,
    groups: int,
    warmup: int,
    draws: int,
    key: Key[Array, ""],
) -> tuple[Float[np.ndarray, "chains draws d"], Float[np.ndarray, " chains"]]:
    """Parallel chains whose density is exp(log_prob) times the mean of exp(-loss) over the random keys of the loss.

    A chain keeps the estimate of the loss and its keys with the position (Andrieu and Roberts 2009). A proposal redraws
    the keys of one of `groups` groups. With one group, all keys are redrawn (plain pseudo-marginal); with more, the
    estimates of neighbouring steps are correlated, and more proposals are accepted (Tran et al. 2016).

    The loss is estimated `warmup + draws` times for each chain, including the start. The scale of the proposal is tuned
    during the warm-up; without warm-up, it is tuned throughout, with steps that tend to zero.

    Args:
        log_prob: log density of the prior at the positions of all chains.
        loss: `loss(positions, keys)`, the loss times the learning rate, from `simulations` keys for each chain.
        start: starting positions of the chains.
        root: factor of the covariance of the proposals, up to scale; for example that of the prior.
        simulations: number of keys for one estimate.
        groups: number of groups of keys, see above.
        warmup: steps not kept.
        draws: steps kept.
        key: a JAX random key.

    Returns:
        The draws, and the acceptance rate of each chain.
    """
    groups = checks.integer(groups, "groups", at_least=1)
    chains, d = start.shape
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    redrawn_first, redrawn_last = _bounds(simulations, groups)
    keys = jax.random.split(jax.random.fold_in(key, 0), (chains, simulations))
    position, value = start, log_prob(start) - loss(start, keys)
    log_scale = np.full(chains, np.log(2.38 / np.sqrt(d)))
    kept, accepted = [position], []
    for t in range(1, warmup + draws):
        proposal = position + np.exp(log_scale)[:, None] * (rng.standard_normal((chains, d)) @ root.T)
        group = rng.integers(groups)
        fresh = jax.random.split(jax.random.fold_in(key, t), (chains, simulations))
        redrawn = (np.arange(simulations) >= redrawn_first[group]) & (np.arange(simulations) < redrawn_last[group])
        new_keys = jax.numpy.where(redrawn, fresh, keys)
        new_value = log_prob(proposal) - loss(proposal, new_keys)
        probability = np.exp(np.minimum(0.0, np.nan_to_num(new_value - value, nan=-np.inf)))
        accept = rng.uniform(size=chains) < probability
        position = np.where(accept[:, None], proposal, position)
        value = np.where(accept, new_value, value)
        keys = jax.numpy.where(accept[:, None], new_keys, keys)
        if t < warmup or not warmup:
            log_scale += (probability - _WANTED) / t**_FORGETTING
        kept.append(position)
        accepted.append(accept)
    return np.stack(kept[warmup:], axis=1), np.mean(accepted[max(warmup - 1, 0) :], axis=0)


def _bounds(simulations: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    edges = np.linspace(0, simulations, min(groups, simulations) + 1).round().astype(int)
    edges = np.concatenate([edges, np.full(max(0, groups - simulations), simulations)])
    return edges[:-1], edges[1:]
