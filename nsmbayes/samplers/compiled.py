"""Adaptive independence sampling as one compiled program, for many targets of the same shape.

The algorithm is that of `independence`: stages, mixtures of Student distributions fitted to
all draws so far, and chains that the best of them proposes to. There, NumPy directs a single target and its losses run
on all cores. Here everything is compiled and stays on the device, so that a thousand small targets cost little more
than their arithmetic: on a processor each core takes a target after another, on a GPU hundreds of them run at once.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nsmbayes._internal.linalg import inverse_factor, triangular_inverse
from nsmbayes._internal.parallel import call_each, on_processor
from nsmbayes.samplers.target import Target, log_prior, total_loss

_FREEDOM = 8  # degrees of freedom of the proposals; even, since such draws need no rejection
_BROAD = 0.1  # share of a component as wide as the whole
_WIDER = 4.0  # how much wider the second component of the first proposal is
_EM_STEPS, _BISECTIONS = 8, 30
_COLDEST = 1e-9
_ENOUGH, _GOOD = 0.12, 0.5  # effective share of a stage that a tempered posterior must have, and at which to stop
_ARRIVED = 2  # stages at the posterior itself, at least
_AT_ONCE, _AT_ONCE_ON_GPU = 1, 64  # parameters whose losses are computed together


class Effort(NamedTuple):
    """How long each target is sampled; compiled in."""

    chains: int = 4
    draws: int = 500
    stage: int = 96
    """Draws of a stage of the adaptation."""
    stages: int = 12
    """Stages, at most."""
    components: int = 3


class Start(NamedTuple):
    """What is known of a target beforehand: the mean and covariance of about where it is."""

    mean: Float[np.ndarray, "*k d"]
    covariance: Float[np.ndarray, "*k d d"]


class Sampled(NamedTuple):
    """Draws of one target, or of many, and how far to trust them."""

    positions: Float[Any, "*k chains draws d"]
    acceptance: Float[Any, "*k chains"]
    temperature: Float[Any, "*k"]
    """1 if the adaptation has arrived at the posterior; draws are useless otherwise."""
    ess: Float[Any, "*k"]
    """Effective number of draws, by the importance weights of the proposals and by how long chains stay in a state."""
    visited: Float[Any, "*k total d"]
    """Positions of all stages: together, weighted, they are draws at any learning rate up to the target's."""
    losses: Float[Any, "*k total"]
    log_priors: Float[Any, "*k total"]
    log_proposals: Float[Any, "*k total"]
    """Log density of the mixture of all proposals; infinite for places that were not used."""


def sample_many(targets: Target, axes: Any, starts: Start, seeds: Int[np.ndarray, " k"], effort: Effort) -> Sampled:
    """Draws of k targets whose arrays, where `axes` says so (as `in_axes` of `jax.vmap`), have a row for each."""
    keys = np.stack([seeds >> 32 & 0xFFFFFFFF, seeds & 0xFFFFFFFF], axis=1).astype(np.uint32)
    if on_processor():
        every = (axes, *(0 for _ in starts), 0)
        arguments = [row_of((targets, *starts, keys), every, i) for i in range(len(keys))]
        found = call_each(_sample, arguments, effort, _AT_ONCE)
        return Sampled(*map(np.stack, zip(*found, strict=True)))
    return Sampled(*call_each(_sample_stacked, [(targets, *starts, keys)], axes, effort)[0])


def row_of(tree: Any, axes: Any, i: int | slice | np.ndarray) -> Any:
    """One of what is stacked in the arrays of a tree, or several of them; arrays, too, where these are numbers."""

    def rows(axis: int | None, part: Any) -> Any:
        return part if axis is None else jax.tree.map(lambda a: np.asarray(a[i]), part)

    return jax.tree.map(rows, axes, tree, is_leaf=lambda axis: axis is None)


def reweighted_starts(sampled: Sampled, betas: Float[np.ndarray, " k"]) -> Start:
    """Where posteriors at other learning rates are, by what was visited at one."""
    weights = visited_weights(sampled, betas)
    means = np.einsum("kn,knd->kd", weights, sampled.visited)
    offsets = sampled.visited - means[:, None]
    return Start(means, (weights[..., None] * offsets).swapaxes(1, 2) @ offsets)


def visited_weights(sampled: Sampled, betas: Float[np.ndarray, "*k"] | float) -> Float[np.ndarray, "*k total"]:
    """Weights that make what was visited draws at learning rates."""
    logs = sampled.log_priors - np.asarray(betas)[..., None] * sampled.losses - sampled.log_proposals
    weights = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _sample_stacked(targets, means, covariances, keys, axes, effort):
    def one(target, mean, covariance, key):
        return _sample(target, mean, covariance, key, effort, _AT_ONCE_ON_GPU)

    return jax.vmap(one, in_axes=(axes, 0, 0, 0))(targets, means, covariances, keys)


class _Students(NamedTuple):
    """sum_k exp(log_weight_k) t(mean_k, (W_k' W_k)^-1), with lower triangular W_k."""

    log_weights: Float[Array, "*stages k"]
    means: Float[Array, "*stages k d"]
    inverses: Float[Array, "*stages k d d"]
    log_dets: Float[Array, "*stages k"]
    """log det of W^-1."""

    def log_prob(self, u: Float[Array, "n d"]) -> Float[Array, " n"]:
        """Log density, normalised."""
        d = u.shape[1]
        constant = math.lgamma((_FREEDOM + d) / 2) - math.lgamma(_FREEDOM / 2) - 0.5 * d * math.log(_FREEDOM * math.pi)
        squares = _squares(u, self.means, self.inverses)
        tails = 0.5 * (_FREEDOM + d) * jnp.log1p(squares / _FREEDOM)
        return constant + jax.nn.logsumexp((self.log_weights - self.log_dets)[:, None] - tails, axis=0)

    def sample(self, key: Key[Array, ""], size: int) -> Float[Array, "size d"]:
        """Independent draws."""
        of_k, of_z, of_u = jax.random.split(key, 3)
        k = jax.random.categorical(of_k, self.log_weights, shape=(size,))
        z = jax.random.normal(of_z, (size, self.means.shape[-1]))
        u = jax.random.uniform(of_u, (size, _FREEDOM // 2), minval=1e-300)
        chi_squared = -2 * jnp.log(u).sum(axis=1, keepdims=True)
        factors = triangular_inverse(self.inverses)
        return self.means[k] + jnp.einsum("nij,nj->ni", factors[k], z / jnp.sqrt(chi_squared / _FREEDOM))


def _students(shares: Array, means: Array, covariances: Array) -> _Students:
    inverses, log_dets = inverse_factor(covariances)
    return _Students(jnp.log(shares), means, inverses, 0.5 * log_dets)


def _squares(u: Float[Array, "n d"], means: Float[Array, "k d"], inverses: Float[Array, "k d d"]) -> Array:
    z = jnp.einsum("kij,nj->kin", inverses, u) - jnp.einsum("kij,kj->ki", inverses, means)[:, :, None]
    return (z**2).sum(axis=1)


def _fit(u: Float[Array, "n d"], weights: Float[Array, " n"], components: int, key: Key[Array, ""]) -> _Students:
    """`students.fit_students`, compiled: by expectation maximisation, with a prior that no covariance collapses."""
    d = u.shape[1]
    centre = weights @ u
    offsets = u - centre
    whole = (weights[:, None] * offsets).T @ offsets
    whole += (1e-10 * jnp.trace(whole) / d + 1e-300) * jnp.eye(d)
    count = 1 / (weights**2).sum()
    typical, belief = whole / components ** (2 / d), (d + 2) / count
    means = u[jax.random.categorical(key, jnp.log(weights), shape=(components,))]

    def step(_, carry):
        shares, means, covariances = carry
        inverses, log_dets = inverse_factor(covariances)
        logs = (jnp.log(shares) - 0.5 * log_dets)[:, None] - 0.5 * _squares(u, means, inverses)
        r = jax.nn.softmax(logs, axis=0) * weights
        mass = r.sum(axis=1)
        shares = (mass + 1 / count) / (mass + 1 / count).sum()
        means = (r @ u + belief * means) / (mass + belief)[:, None]
        second = (r @ (u[:, :, None] * u[:, None, :]).reshape(-1, d * d)).reshape(-1, d, d)
        first = (r @ u)[:, :, None] * means[:, None, :]
        outer = means[:, :, None] * means[:, None, :]
        moments = second - first - jnp.swapaxes(first, 1, 2) + mass[:, None, None] * outer
        return shares, means, (moments + belief * typical) / (mass + belief)[:, None, None]

    start = jnp.full(components, 1 / components), means, jnp.broadcast_to(typical, (components, d, d))
    shares, means, covariances = jax.lax.fori_loop(0, _EM_STEPS, step, start)
    return _students(
        jnp.append((1 - _BROAD) * shares, _BROAD),
        jnp.concatenate([means, centre[None]]),
        jnp.concatenate([covariances, 2 * whole[None]]),
    )


class _State(NamedTuple):
    stage: Int[Array, ""]
    u: Float[Array, "stages n d"]
    log_priors: Float[Array, "stages n"]
    losses: Float[Array, "stages n"]
    densities: Float[Array, "stages stages n"]
    """Of every proposal at the draws of every stage."""
    proposals: _Students
    temperature: Float[Array, ""]
    arrived: Int[Array, ""]
    best: Int[Array, ""]
    share: Float[Array, ""]


def _sample(target: Target, mean: Array, covariance: Array, key: Array, effort: Effort, at_once: int) -> Sampled:
    """Draws of one target."""
    key, beta = jax.random.wrap_key_data(key), target.beta
    d, S, N = len(mean), effort.stages, effort.stage
    of_stages, of_draws, of_accepting = jax.random.split(key, 3)

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
        following = _fit(u.reshape(-1, d), weights, effort.components, jax.random.fold_in(of_stages, S + now))
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
    first = final.u.reshape(-1, d)[jax.random.categorical(of_accepting, weights.ravel(), shape=(effort.chains,))]
    drawn = proposal.sample(of_draws, effort.chains * effort.draws)
    states = jnp.concatenate([first[:, None], drawn.reshape(effort.chains, effort.draws, d)], axis=1)
    flat = states.reshape(-1, d)
    log_priors, losses = evaluate(flat)
    log_ratios = (log_priors - beta * losses - proposal.log_prob(flat)).reshape(effort.chains, -1)
    uniforms = jnp.log(jax.random.uniform(jax.random.fold_in(of_accepting, 1), log_ratios.shape, minval=1e-300))
    last, accepted = _accept(log_ratios, uniforms)
    return Sampled(
        jnp.take_along_axis(states, last[..., None], axis=1),
        accepted.mean(axis=1),
        final.temperature,
        jnp.minimum(_effective(log_ratios[:, 1:].ravel()), _distinct(last)),
        final.u.reshape(-1, d),
        final.losses.ravel(),
        final.log_priors.ravel(),
        mixed.ravel(),
    )


def _begin(mean: Float[Array, " d"], covariance: Float[Array, "d d"], effort: Effort) -> _State:
    """Nothing drawn yet; the first proposal is around the mean, part of it much wider."""
    d, S, N, K = len(mean), effort.stages, effort.stage, effort.components + 1
    shares = jnp.full(K, 0.3 / (K - 1)).at[0].set(0.7)
    wide = jnp.where(jnp.arange(K) > 0, _WIDER**2, 1.0)
    first = _students(shares, jnp.broadcast_to(mean, (K, d)), wide[:, None, None] * covariance)
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
    """The effective number of states that independent chains were in: they never come back to one."""
    chains, draws = last.shape
    stays = jnp.zeros((chains, draws + 1)).at[jnp.arange(chains)[:, None], last].add(1.0)
    return last.size**2 / (stays**2).sum()


def _temperature(log_weights: Float[Array, " n"], enough: float) -> Float[Array, ""]:
    """The largest power up to 1 of the weights that leaves enough effective draws."""

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
    """The state that each chain is in after each proposal, and whether it has just moved there."""

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
