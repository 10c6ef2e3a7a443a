"""Tempered sequential Monte Carlo: one population of particles led from the prior to a learning rate beta."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc import hmc
from blackjax.smc.ess import log_ess
from blackjax.smc.resampling import systematic
from blackjax.smc.solver import dichotomy
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Key

from nsmbayes import _checks
from nsmbayes._checks import InputError
from nsmbayes._precision import double_precision
from nsmbayes.samplers.chains import ConvergenceError, as_traced
from nsmbayes.samplers.path import SMCPath

_MAX_STAGES = 500
_TARGET_ACCEPTANCE = 0.8
_TRAJECTORY = np.pi / 2  # in units of the particles' covariance; takes a Gaussian to an independent point
_MAX_LEAPFROG = 16
_FORGOTTEN = 0.1  # correlation between the start and the end of a stage below which it stops moving
_LINES_END = 0.3  # and below which descent no longer matters

# What a stage of a population that really moves satisfies by a wide margin.
_LEAST_ACCEPTANCE = 0.1
_LEAST_DISTINCT = 0.75
_LARGEST_MEMORY = 0.95
_LEAST_FOUNDERS = 20
_BATCH = 64  # particles whose losses are in memory at once
_LEAST_PARTICLES = 100  # and ten for every dimension, lest their covariance be singular


@double_precision
def sample_smc(
    log_prior: Callable[[Float[Array, " d"], Any], Float[Array, ""]],
    loss: Callable[[Float[Array, " d"], Any], Float[Array, ""]],
    initial_particles: Any,
    data: Any = None,
    *,
    beta: float,
    key: Key[Array, ""],
    ess: float = 0.5,
    moves: int = 20,
    snapshots: Sequence[float] = (),
) -> SMCPath:
    """Particles of exp(log_prior(position, data) - b * loss(position, data)) for b from 0 to `beta`.

    Each stage raises b until the reweighted particles are worth a share `ess` of their number, resamples them and moves
    them by Hamiltonian Monte Carlo at the new b. The mass matrix is the covariance of the particles, the step size
    follows their acceptance rate, and the moves go on until positions and log densities have forgotten where the
    stage began (a correlation below 0.1), or `moves` are made. A population that does not move is not returned.

    Compilation is kept: a second call with the same functions and data of the same shapes only runs, whatever the
    number of stages.

    Args:
        log_prior: the log density of the prior up to a constant, a JAX function differentiable in the position.
        loss: the total loss, likewise. Where it is NaN or infinite it counts as +inf: no particle goes there.
        initial_particles: independent draws from the prior, shape (N, d).
        data: any pytree; its arrays and floats are traced.
        beta: the learning rate to reach.
        key: a JAX random key.
        ess: effective sample size that a stage may fall to, as a share of N. Closer to 1 means more, smaller stages.
        moves: at most so many moves a stage.
        snapshots: learning rates at which the path must stop on its way, exactly.

    Raises:
        ConvergenceError: if the moves of some stage are hardly accepted or leave the particles where they were, or if
            the particles descend from too few. What cannot be noticed is a mode that no draw from the prior has hit.

    Example:
        >>> def log_prior(position, data):
        ...     return -0.5 * jnp.sum(position**2)
        >>> def loss(position, data):
        ...     return 0.5 * jnp.sum((position - data) ** 2)
        >>> prior_draws = np.random.default_rng(0).standard_normal((500, 1))
        >>> path = sample_smc(log_prior, loss, prior_draws, 3.0, beta=2.0, key=jax.random.key(0), snapshots=[1.0])
        >>> 1.0 in path.betas, bool(abs(path.particles[-1].mean() - 2) < 0.2), bool(path.at(1.5).ess > 250)
        (True, True, True)
    """
    particles = _checks.matrix(initial_particles, "initial_particles", min_rows=_LEAST_PARTICLES)
    N, d = particles.shape
    if 10 * d > N:
        raise InputError(f"`initial_particles` needs at least {10 * d} rows for {d} dimensions; got {N}. Draw more.")
    stops = _stops(beta, snapshots)
    ess = _checks.fraction(ess, "ess")
    if ess * N < 1:
        raise InputError(f"`ess` must leave at least one particle of {N}; got {ess:g}. Take 0.5.")
    moves = _checks.integer(moves, "moves", at_least=1)
    data = as_traced(data)

    log_priors, losses = _evaluate(log_prior, loss, data, particles)
    _require_a_start(np.asarray(log_priors), np.asarray(losses))
    start = _Stage(0.0, particles, losses, float(N), 1.0, 0.0, float(N), 0.0, d**-0.25, np.arange(N))
    path = [jax.tree.map(np.asarray, start)]
    while (now := path[-1]).beta < stops[-1]:
        key, stage_key = jax.random.split(key)
        stop = stops[np.searchsorted(stops, now.beta, side="right")]
        after = _stage(log_prior, loss, data, stage_key, now, stop, np.asarray(ess), np.asarray(moves))
        path.append(jax.tree.map(np.asarray, after))
        _require_progress(path)
    fields = [np.stack(values) for values in zip(*path, strict=True)]
    return SMCPath(*fields[:7], log_evidence=fields[7].cumsum())


class _Stage(NamedTuple):
    beta: Any
    particles: Any
    losses: Any
    ess: Any
    acceptance: Any
    memory: Any
    founders: Any
    log_evidence_increment: Any
    step_size: Any
    lines: Any


@eqx.filter_jit
def _evaluate(log_prior, loss, data, particles):
    return _for_each(
        lambda position: (
            jnp.asarray(log_prior(position, data), float),
            _finite_or_infinite(loss(position, data)),
        ),
        particles,
    )


@eqx.filter_jit
def _stage(log_prior, loss, data, key, now: _Stage, stop, ess, moves) -> _Stage:
    N, d = now.particles.shape
    resampling_key, moves_key = jax.random.split(key)

    # Infinite losses are ruled out by any beta > 0, so that they must not count in the choice of a small one.
    allowed = jnp.isfinite(now.losses)

    def log_weights(delta):
        return jnp.where(allowed, -delta * now.losses, -jnp.inf)

    largest = stop - now.beta
    delta = dichotomy(lambda delta: log_ess(log_weights(delta)) - jnp.log(ess * allowed.sum()), 0.0, largest)
    beta = jnp.where(delta < largest, now.beta + delta, stop)
    log_total = logsumexp(log_weights(delta))
    weights = jnp.exp(log_weights(delta) - log_total)
    parents = systematic(resampling_key, weights, N)
    covariance = jnp.cov(now.particles.T, aweights=weights, ddof=0).reshape(d, d)

    def target(position):
        return -_finite_or_infinite(beta * loss(position, data) - log_prior(position, data))

    particles, acceptance, correlations, step_size = _move(
        target, moves_key, now.particles[parents], covariance, now.step_size, moves
    )
    lines = jnp.where((jnp.abs(correlations) < _LINES_END).all(), jnp.arange(N), now.lines[parents])
    losses = _for_each(lambda position: _finite_or_infinite(loss(position, data)), particles)
    return _Stage(
        beta=beta,
        particles=particles,
        losses=losses,
        ess=1 / (weights**2).sum(),
        acceptance=acceptance,
        memory=correlations[-1],
        founders=N**2 / (jnp.bincount(lines, length=N) ** 2).sum(),
        log_evidence_increment=log_total - jnp.log(N),
        step_size=step_size,
        lines=lines,
    )


def _move(target, key, particles, covariance, step_size, moves):
    """Hamiltonian Monte Carlo moves of all particles until they have forgotten where they were."""
    kernel: Any = hmc.build_kernel()  # its types know neither batches nor traced numbers of steps
    start: Any = _for_each(lambda position: hmc.init(position, target), particles)

    def correlations(state):
        before, after = (jnp.column_stack([s.position, s.logdensity]) for s in (start, state))
        before, after = before - before.mean(0), after - after.mean(0)
        return (before * after).sum(0) / jnp.sqrt((before**2).sum(0) * (after**2).sum(0))

    def unfinished(carry):
        made, _, _, _, _, correlations = carry
        return (made < moves) & ~(jnp.abs(correlations) < _FORGOTTEN).all()

    def move(carry):
        made, key, state, step_size, accepted, _ = carry
        key, steps_key, moves_key = jax.random.split(key, 3)
        # Trajectories of different lengths, lest all of them come back to where they began.
        steps = step_size * jax.random.uniform(steps_key, (len(particles),), minval=0.7, maxval=1.3)
        leapfrogs = jnp.clip(jnp.round(_TRAJECTORY / step_size), 1, _MAX_LEAPFROG).astype(int)

        def move_one(one):
            key, state, step = one
            state, info = kernel(key, state, target, step, covariance, leapfrogs)
            return state, info.acceptance_rate

        state, rates = _for_each(move_one, (jax.random.split(moves_key, len(particles)), state, steps))
        rate = rates.mean()
        step_size = jnp.minimum(step_size * jnp.exp(rate - _TARGET_ACCEPTANCE), _TRAJECTORY)
        return made + 1, key, state, step_size, accepted + rate, correlations(state)

    carry = 0, key, start, jnp.asarray(step_size, float), jnp.zeros(()), correlations(start)
    made, _, state, step_size, accepted, last = jax.lax.while_loop(unfinished, move, carry)
    return state.position, accepted / made, last, step_size


def _for_each(function, rows):
    """`function` of every row, a batch at a time: memory then depends on the batch, not on the number of particles."""
    return jax.lax.map(function, rows, batch_size=_BATCH)


def _finite_or_infinite(value):
    value = jnp.asarray(value, float)
    return jnp.where(jnp.isfinite(value), value, jnp.inf)


def _stops(beta: Any, snapshots: Sequence[float]) -> np.ndarray:
    beta = _checks.positive(beta, "beta")
    stops = [_checks.positive(value, "snapshots") for value in snapshots]
    if max(stops, default=0) > beta:
        raise InputError(f"`snapshots` must not go beyond `beta` = {beta:g}; got {max(stops):g}. Raise `beta`.")
    return np.unique([*stops, beta])


def _require_a_start(log_priors: np.ndarray, losses: np.ndarray) -> None:
    impossible = np.flatnonzero(~np.isfinite(log_priors))
    if impossible.size:
        raise InputError(
            f"`log_prior` must be finite at every row of `initial_particles`; it is {log_priors[impossible[0]]} at row "
            f"{impossible[0]}, and not finite at {impossible.size} rows. Draw the particles from the prior itself."
        )
    possible = int(np.isfinite(losses).sum())
    if possible < _LEAST_FOUNDERS:
        raise InputError(
            f"`loss` is finite at {possible} of {len(losses)} rows of `initial_particles`, and at least "
            f"{_LEAST_FOUNDERS} are needed. Find out where it is not, or draw more particles."
        )


def _require_progress(path: list[_Stage]) -> None:
    before, last = path[-2:]
    distinct = len(np.unique(last.particles, axis=0)) / len(last.particles)
    where = f"between beta = {before.beta:.3g} and {last.beta:.3g} (stage {len(path) - 1})"
    if not (
        last.acceptance >= _LEAST_ACCEPTANCE and distinct >= _LEAST_DISTINCT and abs(last.memory) <= _LARGEST_MEMORY
    ):  # so that NaN is refused, too
        raise ConvergenceError(
            f"The particles froze {where}: {last.acceptance:.1%} of the moves were accepted, {distinct:.1%} of the "
            f"particles are distinct, and their log densities before and after the moves have a correlation of "
            f"{last.memory:.2f}. Check that the gradient of `loss` is finite and smooth, then take more `moves`, more "
            "particles or an `ess` closer to 1, or use sample_nuts."
        )
    if last.founders < _LEAST_FOUNDERS:
        raise ConvergenceError(
            f"Too few lines of descent survive {where}: the particles stay where they are resampled, as between the "
            f"modes of a density, and effectively descend from {last.founders:.1f} of {len(last.particles)} particles. "
            "Take more particles, more `moves` or a smaller `beta`, and compare runs with different keys."
        )
    if last.beta <= before.beta or len(path) > _MAX_STAGES:
        raise ConvergenceError(
            f"The path does not advance {where}: the losses of the particles differ too much, from "
            f"{last.losses.min():.3g} to {last.losses.max():.3g}. Bound the loss, or ask for a smaller `beta`."
        )
