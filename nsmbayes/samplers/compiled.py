"""Adaptive independence sampling as one compiled program, for many targets of the same shape.

The algorithm is that of `independence`: in stages, mixtures of Student distributions are fitted to all draws so far,
and the best of them is the proposal of the chains. There, NumPy controls a single target whose losses run on all cores.
Here everything is compiled and stays on the device, so that a thousand small targets cost little more than their
arithmetic: on a processor each core samples one target after another, on a GPU hundreds of them run at once.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from nsmbayes._internal.parallel import call_each, on_processor
from nsmbayes.samplers.target import Target, log_prior, total_loss
from nsmbayes.samplers.traced_students import TracedStudents, fit_traced, traced_students

_WIDER = 4.0  # scale of the second component of the first proposal, relative to the first component
_BISECTIONS = 30
_COLDEST = 1e-9
_ENOUGH, _GOOD = 0.12, 0.5  # effective share of a stage: needed at a temperature, and enough to stop
_ARRIVED = 2  # least number of stages at the posterior itself
_PER_PARAMETER, _HALVINGS = (
    3,
    40,
)  # effective parameters that a start rests on, and steps of the search for a temperature
_ACCEPTING = 3  # folded into the key of the random numbers by which chains accept
_AT_ONCE, _AT_ONCE_ON_GPU = None, 64  # parameters whose losses are computed together; None is one by one


class Effort(NamedTuple):
    """How long to sample each target; a constant of the compiled program."""

    chains: int = 4
    draws: int = 500
    stage: int = 96
    """Draws per stage of the adaptation."""
    stages: int = 12
    """Largest number of stages."""
    components: int = 3
    offers: bool = False
    """Whether to keep the proposed states, which `accepted_again` needs."""


class Start(NamedTuple):
    """A rough guess of the mean and covariance of a target."""

    mean: Float[np.ndarray, "*k d"]
    covariance: Float[np.ndarray, "*k d d"]

    def draws(self, size: int, rng: np.random.Generator) -> Float[np.ndarray, "*k size d"]:
        """Draw from the normal distribution with this mean and covariance."""
        z = rng.standard_normal((*self.mean.shape[:-1], size, self.mean.shape[-1]))
        return self.mean[..., None, :] + z @ np.linalg.cholesky(self.covariance).swapaxes(-1, -2)


class Sampled(NamedTuple):
    """Draws from one target, or from many, and their diagnostics."""

    positions: Float[Any, "*k chains draws d"]
    acceptance: Float[Any, "*k chains"]
    temperature: Float[Any, "*k"]
    """1 if the adaptation has reached the posterior; otherwise the draws are useless."""
    ess: Float[Any, "*k"]
    """Effective sample size: the smaller of those by importance weights and by how long chains stay in a state."""
    visited: Float[Any, "*k total d"]
    """Positions of all stages: weighted, they represent the posterior at any rate up to that of the target."""
    losses: Float[Any, "*k total"]
    log_priors: Float[Any, "*k total"]
    log_proposals: Float[Any, "*k total"]
    """Log density of the mixture of all proposals; infinite in unused entries."""
    offered: Float[Any, "*k chains draws+1 d"]
    """The states proposed to the chains, accepted or not, after the state in which each chain began.

    Empty unless `Effort.offers` is set.
    """
    offered_losses: Float[Any, "*k chains draws+1"]
    offered_log_ratios: Float[Any, "*k chains draws+1"]
    """Log density of the prior minus that of the proposal, at the proposed states."""

    def only(self, some: Any) -> "Sampled":
        """Select some of the targets."""
        return Sampled(*(part[some] for part in self))

    def replaced(self, some: Int[np.ndarray, " m"], others: "Sampled") -> "Sampled":
        """Replace the draws of some targets; in place where the arrays are writable."""
        parts = [np.require(part, requirements="W") for part in self]  # JAX's cannot
        for part, other in zip(parts, others, strict=True):
            part[some] = other
        return Sampled(*parts)


def sample_many(targets: Target, axes: Any, starts: Start, seeds: Int[np.ndarray, " k"], effort: Effort) -> Sampled:
    """Draw from k targets, stacked in arrays with a row for each where `axes` says so (as `in_axes` of `jax.vmap`)."""
    keys = _keys(seeds)
    if on_processor():
        every = (axes, *(0 for _ in starts), 0)
        arguments = [row_of((targets, *starts, keys), every, i) for i in range(len(keys))]
        found = call_each(_sample, arguments, effort, _AT_ONCE)
        return Sampled(*map(np.stack, zip(*found, strict=True)))
    return Sampled(*call_each(_sample_stacked, [(targets, *starts, keys)], axes, effort)[0])


def accepted_again(sampled: Sampled, betas: Float[np.ndarray, " k"], seeds: Int[np.ndarray, " k"]) -> Sampled:
    """Draw at other learning rates from the proposals that are known already; no loss is computed."""
    keys = _keys(seeds)
    parts = (sampled.offered, sampled.offered_losses, sampled.offered_log_ratios, betas, keys)
    if on_processor():
        each = [row_of(parts, (0,) * len(parts), i) for i in range(len(betas))]
        found = map(np.stack, zip(*call_each(_accepted, each), strict=True))
    else:
        found = call_each(_accepted_stacked, [parts])[0]
    positions, acceptance, ess = found
    return sampled._replace(positions=positions, acceptance=acceptance, ess=ess)


def row_of(tree: Any, axes: Any, i: int | slice | np.ndarray) -> Any:
    """Select one row, or several, of the stacked arrays of a tree; numbers become arrays, too."""

    def rows(axis: int | None, part: Any) -> Any:
        return part if axis is None else jax.tree.map(lambda a: np.asarray(a[i]), part)

    return jax.tree.map(rows, axes, tree, is_leaf=lambda axis: axis is None)


def reweighted_starts(sampled: Sampled, betas: Float[np.ndarray, " k"]) -> Start:
    """Means and covariances at other learning rates, from the parameters visited at one.

    Weights are tempered where few parameters would carry all of them, whose covariance would be singular.
    """
    logs, d = _visited_logs(sampled, betas), sampled.visited.shape[-1]
    power = np.ones(len(logs))
    weights = _normalised(logs)
    for _ in range(_HALVINGS):
        few = (weights**2).sum(axis=1) * _PER_PARAMETER * d > 1
        if not few.any():
            break
        power[few] /= 2
        weights[few] = _normalised(power[few, None] * logs[few])
    means = np.einsum("kn,knd->kd", weights, sampled.visited)
    offsets = sampled.visited - means[:, None]
    return Start(means, (weights[..., None] * offsets).swapaxes(1, 2) @ offsets)


def visited_weights(sampled: Sampled, betas: Float[np.ndarray, "*k"] | float) -> Float[np.ndarray, "*k total"]:
    """Importance weights of the visited parameters at given learning rates."""
    return _normalised(_visited_logs(sampled, betas))


def _visited_logs(sampled: Sampled, betas: Float[np.ndarray, "*k"] | float) -> Float[np.ndarray, "*k total"]:
    """Log importance weights, up to a constant; very small instead of minus infinity."""
    logs = sampled.log_priors - np.asarray(betas)[..., None] * sampled.losses - sampled.log_proposals
    return np.maximum(logs, -1e300)


def _normalised(logs: Float[np.ndarray, "*k total"]) -> Float[np.ndarray, "*k total"]:
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _keys(seeds: Int[np.ndarray, " k"]) -> UInt32[np.ndarray, "k 2"]:
    return np.stack([seeds >> 32 & 0xFFFFFFFF, seeds & 0xFFFFFFFF], axis=1).astype(np.uint32)


def _sample_stacked(targets, means, covariances, keys, axes, effort):
    def one(target, mean, covariance, key):
        return _sample(target, mean, covariance, key, effort, _AT_ONCE_ON_GPU)

    return jax.vmap(one, in_axes=(axes, 0, 0, 0))(targets, means, covariances, keys)


class _State(NamedTuple):
    stage: Int[Array, ""]
    u: Float[Array, "stages n d"]
    log_priors: Float[Array, "stages n"]
    losses: Float[Array, "stages n"]
    densities: Float[Array, "stages stages n"]
    """Of every proposal at the draws of every stage."""
    proposals: TracedStudents
    temperature: Float[Array, ""]
    arrived: Int[Array, ""]
    best: Int[Array, ""]
    share: Float[Array, ""]


def _sample(target: Target, mean: Array, covariance: Array, key: Array, effort: Effort, at_once: int | None) -> Sampled:
    """Draw from one target."""
    beta = jnp.asarray(target.beta)
    d, S, N = len(mean), effort.stages, effort.stage
    of_stages, of_draws, of_start = jax.random.split(jax.random.wrap_key_data(key), 3)

    def parts(u: Float[Array, " d"]) -> tuple[Array, Array]:
        return log_prior(u, target), total_loss(u, target)

    def evaluate(u: Float[Array, "n d"]) -> tuple[Array, Array]:
        log_priors, losses = jax.lax.map(parts, u, batch_size=at_once)
        possible = jnp.isfinite(log_priors) & jnp.isfinite(losses)
        return jnp.where(possible, log_priors, -jnp.inf), jnp.where(possible, losses, 0.0)

    def filled(state: _State) -> Bool[Array, "stages 1"]:
        return (jnp.arange(S) < state.stage)[:, None]

    def log_mixture(state: _State) -> Float[Array, "stages n"]:
        used = (jnp.arange(S) < state.stage)[:, None, None]
        logs = jax.nn.logsumexp(jnp.where(used, state.densities, -jnp.inf), axis=0) - jnp.log(state.stage)
        return jnp.where(filled(state), logs, jnp.inf)

    def body(state: _State) -> _State:
        now = state.stage
        proposal = jax.tree.map(lambda a: a[now], state.proposals)
        new = proposal.sample(jax.random.fold_in(of_stages, now), N)
        log_priors, losses = evaluate(new)
        u = state.u.at[now].set(new)
        of_new = jax.vmap(lambda one: one.log_prob(new))(state.proposals)
        of_all = proposal.log_prob(u.reshape(-1, d)).reshape(S, N)
        state = state._replace(
            stage=now + 1,
            u=u,
            log_priors=state.log_priors.at[now].set(log_priors),
            losses=state.losses.at[now].set(losses),
            densities=state.densities.at[:, now].set(of_new).at[now].set(of_all),
        )
        share = _effective(log_priors - beta * losses - of_all[now]) / N
        better = share > state.share
        log_weights = (state.log_priors - beta * state.losses - log_mixture(state)).ravel()
        arrived = state.arrived + (state.temperature == 1)
        temperature = _temperature(log_weights, max(_ENOUGH * N, 8.0 * d))
        weights = jax.nn.softmax(temperature * log_weights)
        following = fit_traced(u.reshape(-1, d), weights, effort.components, jax.random.fold_in(of_stages, S + now))
        return state._replace(
            proposals=jax.tree.map(lambda a, b: a.at[now + 1].set(b, mode="drop"), state.proposals, following),
            temperature=temperature,
            arrived=arrived,
            best=jnp.where(better, now, state.best),
            share=jnp.where(better, share, state.share),
        )

    def go_on(state: _State) -> Bool[Array, ""]:
        return (state.stage < S) & ((state.arrived < _ARRIVED) | (state.share < _GOOD))

    final = jax.lax.while_loop(go_on, body, _begin(mean, covariance, effort))
    proposal = jax.tree.map(lambda a: a[final.best], final.proposals)
    mixed = log_mixture(final)
    weights = final.log_priors - beta * final.losses - mixed
    first = final.u.reshape(-1, d)[jax.random.categorical(of_start, weights.ravel(), shape=(effort.chains,))]
    drawn = proposal.sample(of_draws, effort.chains * effort.draws)
    offered = jnp.concatenate([first[:, None], drawn.reshape(effort.chains, effort.draws, d)], axis=1)
    flat = offered.reshape(-1, d)
    log_priors, losses = (part.reshape(effort.chains, -1) for part in evaluate(flat))
    log_ratios = log_priors - proposal.log_prob(flat).reshape(effort.chains, -1)
    positions, acceptance, ess = _accepted(offered, losses, log_ratios, beta, key)
    if not effort.offers:
        offered, losses, log_ratios = offered[:, :0], losses[:, :0], log_ratios[:, :0]
    return Sampled(
        positions,
        acceptance,
        final.temperature,
        ess,
        final.u.reshape(-1, d),
        final.losses.ravel(),
        final.log_priors.ravel(),
        mixed.ravel(),
        offered,
        losses,
        log_ratios,
    )


def _accepted(
    offered: Float[Array, "chains draws+1 d"],
    losses: Float[Array, "chains draws+1"],
    log_ratios: Float[Array, "chains draws+1"],
    beta: Float[Array, ""],
    key: UInt32[Array, "2"],
) -> tuple[Float[Array, "chains draws d"], Float[Array, " chains"], Float[Array, ""]]:
    """The states of the chains after each proposal, their acceptance rates, and the effective sample size."""
    of_uniforms = jax.random.fold_in(jax.random.wrap_key_data(key), _ACCEPTING)
    uniforms = jnp.log(jax.random.uniform(of_uniforms, log_ratios.shape, minval=1e-300))
    log_ratios = log_ratios - beta * losses
    last, accepted = _accept(log_ratios, uniforms)
    ess = jnp.minimum(_effective(log_ratios[:, 1:].ravel()), _distinct(last))
    return jnp.take_along_axis(offered, last[..., None], axis=1), accepted.mean(axis=1), ess


def _accepted_stacked(*parts: Array) -> tuple[Array, Array, Array]:
    return jax.vmap(_accepted)(*parts)


def _begin(mean: Float[Array, " d"], covariance: Float[Array, "d d"], effort: Effort) -> _State:
    """The state before the first draw; the first proposal is around the mean, with a much wider component."""
    d, S, N, K = len(mean), effort.stages, effort.stage, effort.components + 1
    shares = jnp.full(K, 0.3 / (K - 1)).at[0].set(0.7)
    wide = jnp.where(jnp.arange(K) > 0, _WIDER**2, 1.0)
    first = traced_students(shares, jnp.broadcast_to(mean, (K, d)), wide[:, None, None] * covariance)
    proposals = jax.tree.map(lambda a: jnp.broadcast_to(a, (S, *a.shape)), first)
    nothing, zero = jnp.zeros((S, N)), jnp.asarray(0)
    return _State(
        zero, jnp.broadcast_to(mean, (S, N, d)), nothing, nothing, jnp.zeros((S, S, N)), proposals, jnp.asarray(0.0),
        zero, zero, jnp.asarray(-1.0),
    )  # fmt: skip


def _effective(log_weights: Float[Array, " n"]) -> Float[Array, ""]:
    largest = log_weights.max()
    weights = jnp.exp(log_weights - jnp.where(jnp.isfinite(largest), largest, 0.0))
    return weights.sum() ** 2 / jnp.maximum((weights**2).sum(), 1e-300)


def _distinct(last: Int[Array, "chains draws"]) -> Float[Array, ""]:
    """The effective number of distinct states: independent chains never return to one."""
    chains, draws = last.shape
    stays = jnp.zeros((chains, draws + 1)).at[jnp.arange(chains)[:, None], last].add(1.0)
    return last.size**2 / (stays**2).sum()


def _temperature(log_weights: Float[Array, " n"], enough: float) -> Float[Array, ""]:
    """The largest power of the weights, up to 1, that leaves enough effective draws."""

    def step(_, bounds):
        low, high = bounds
        middle = jnp.sqrt(low * high)
        enough_left = _effective(middle * log_weights) > enough
        return jnp.where(enough_left, middle, low), jnp.where(enough_left, high, middle)

    low, _ = jax.lax.fori_loop(0, _BISECTIONS, step, (jnp.asarray(_COLDEST), jnp.asarray(1.0)))
    return jnp.where(_effective(log_weights) >= enough, 1.0, low)


def _accept(
    log_ratios: Float[Array, "chains draws+1"], log_uniforms: Float[Array, "chains draws+1"]
) -> tuple[Int[Array, "chains draws"], Bool[Array, "chains draws"]]:
    """The state of each chain after each proposal, and whether the proposal was accepted."""

    def step(carry, one):
        now, index = carry
        number, ratio, uniform = one
        accepted = uniform < ratio - now
        carry = jnp.where(accepted, ratio, now), jnp.where(accepted, number, index)
        return carry, (carry[1], accepted)

    chains, total = log_ratios.shape
    start = log_ratios[:, 0], jnp.zeros(chains, int)
    each = (jnp.arange(1, total), log_ratios[:, 1:].T, log_uniforms[:, 1:].T)
    _, (last, accepted) = jax.lax.scan(step, start, each)
    return last.T, accepted.T
