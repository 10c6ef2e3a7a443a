"""Chains for exp(-beta sum_i S(P_theta, x_i)) prior(theta), where the kernel score S is estimated from simulations."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nsmbayes.diagnostics.kernels import kernel_score
from nsmbayes.methods.baselines.descent import stochastic_descent
from nsmbayes.priors import UnconstrainedPrior
from nsmbayes.samplers.langevin import adaptive_langevin
from nsmbayes.samplers.pseudo_marginal import sample_pseudo_marginal
from nsmbayes.simulators import JaxSimulator, Simulator, check_gradients

_DESCENT_RATE = 0.05  # learning rate of Adam, in standard deviations of the prior
_STEP = 0.5  # step of Langevin dynamics, times the standard deviation of the gradient


class ScoreTarget(NamedTuple):
    """All inputs of the density, except the simulator, the resample and the learning rate."""

    support: UnconstrainedPrior
    centre: Float[Array, " d"]
    root: Float[Array, "d d"]
    x: Float[Array, "n d_x"]
    lengthscale: Float[Array, ""]

    def theta(self, v: Float[Array, " d"]) -> Float[Array, " d"]:
        """theta at position v, in coordinates where the prior has mean zero and unit covariance."""
        return self.support.constrain(self.centre + self.root @ v)

    def log_prior(self, v: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density of v, up to a constant."""
        return self.support.log_prob(self.centre + self.root @ v)


class ScoreChains(ABC):
    """A prepared sampler: its chains start at or near the minimiser of the loss of the full data."""

    start: Float[np.ndarray, " d"]

    @abstractmethod
    def run(
        self,
        betas: Float[np.ndarray, " chains"],
        counts: Float[np.ndarray, "chains n"],
        key: Key[Array, ""],
        *,
        simulations: int,
        warmup: int,
        draws: int,
    ) -> tuple[Float[np.ndarray, "chains draws d"], Float[np.ndarray, " chains"]]:
        """Draws and acceptance rates of chains at these learning rates, given these resamples.

        A resample is a vector of counts of the observations. An estimate of the loss takes `simulations` simulations;
        each chain takes `warmup + draws` estimates.
        """


@dataclass(frozen=True)
class LangevinChains(ScoreChains):
    """Adaptive Langevin dynamics, for a differentiable simulator."""

    one: Callable[..., Any]
    target: ScoreTarget
    start: Float[np.ndarray, " d"]
    noise: float
    """Standard deviation of the gradient of the loss, for estimates from one simulation."""

    @classmethod
    def prepare(
        cls, simulator: JaxSimulator, target: ScoreTarget, key: Key[Array, ""], *, simulations: int, steps: int
    ) -> Self:
        """Descend to the minimiser of the loss; the gradients of the steps give the noise."""
        everything = jnp.ones(len(target.x))
        v, gradients = jax.tree.map(np.asarray, _descend(simulator.one, target, everything, key, simulations, steps))
        check_gradients(gradients)
        noise = gradients[len(gradients) // 2 :].std(axis=0).max() * np.sqrt(simulations)
        return cls(simulator.one, target, v, noise)

    def run(
        self,
        betas: Float[np.ndarray, " chains"],
        counts: Float[np.ndarray, "chains n"],
        key: Key[Array, ""],
        *,
        simulations: int,
        warmup: int,
        draws: int,
    ) -> tuple[Float[np.ndarray, "chains draws d"], Float[np.ndarray, " chains"]]:
        """Draws of chains at these learning rates, given these resamples; all proposals are accepted."""
        step_sizes = _STEP / (1 + betas * self.noise / np.sqrt(simulations))
        positions = _langevin(
            self.one,
            self.target,
            jnp.asarray(betas),
            jnp.asarray(counts, float),
            jnp.asarray(step_sizes),
            jnp.asarray(self.start),
            jax.random.split(key, len(betas)),
            simulations,
            warmup + draws,
        )
        return np.asarray(positions)[:, warmup:], np.ones(len(betas))


@dataclass(frozen=True)
class PseudoMarginalChains(ScoreChains):
    """Pseudo-marginal Metropolis-Hastings, for any simulator."""

    simulator: Simulator
    target: ScoreTarget
    start: Float[np.ndarray, " d"]
    groups: int

    @classmethod
    def prepare(
        cls,
        simulator: Simulator,
        target: ScoreTarget,
        key: Key[Array, ""],
        *,
        simulations: int,
        steps: int,
        groups: int,
    ) -> Self:
        """Start at the mean of the posterior at beta = 1, in place of the minimiser of the loss."""
        chains = cls(simulator, target, np.zeros(len(target.centre)), groups)
        everything = np.ones((1, len(target.x)))
        positions, _ = chains.run(np.ones(1), everything, key, simulations=simulations, warmup=0, draws=steps)
        return replace(chains, start=positions[0].mean(axis=0))

    def run(
        self,
        betas: Float[np.ndarray, " chains"],
        counts: Float[np.ndarray, "chains n"],
        key: Key[Array, ""],
        *,
        simulations: int,
        warmup: int,
        draws: int,
    ) -> tuple[Float[np.ndarray, "chains draws d"], Float[np.ndarray, " chains"]]:
        """Draws and acceptance rates of chains at these learning rates, given these resamples."""
        weights = jnp.asarray(betas[:, None] * counts)

        def loss(v, keys):
            theta = np.repeat(np.asarray(_thetas(self.target, jnp.asarray(v))), simulations, axis=0)
            x = self.simulator.rows(keys.ravel(), theta)
            return np.asarray(_scores(self.target, jnp.asarray(x.reshape(len(v), simulations, -1)), weights))

        return sample_pseudo_marginal(
            lambda v: np.asarray(_log_priors(self.target, jnp.asarray(v))),
            loss,
            np.tile(self.start, (len(betas), 1)),
            np.eye(len(self.start)),
            simulations=simulations,
            groups=self.groups,
            warmup=warmup,
            draws=draws,
            key=key,
        )


def _score(one: Callable[..., Any], target: ScoreTarget, counts: Any, simulations: int, v: Any, key: Any) -> Any:
    """Estimate of sum_i count_i S(P_theta, x_i)."""
    simulated = jax.vmap(one, (0, None))(jax.random.split(key, simulations), target.theta(v))
    return kernel_score(simulated, target.x, counts, target.lengthscale)


@eqx.filter_jit
def _descend(one: Callable[..., Any], target: ScoreTarget, counts: Any, key: Any, simulations: int, steps: int):
    def loss(v, key):
        return _score(one, target, counts, simulations, v, key)

    start = jnp.zeros_like(target.centre)
    return stochastic_descent(loss, start, key, steps=steps, rate=_DESCENT_RATE, decay=True)


@eqx.filter_jit
def _langevin(one, target, betas, counts, step_sizes, start, keys, simulations, steps):
    def chain(beta, counts, step_size, key):
        def energy(v, key):
            return beta * _score(one, target, counts, simulations, v, key) - target.log_prior(v)

        def gradient(v, key):
            g = jax.grad(energy)(v, key)
            return jnp.where(jnp.isfinite(g), g, 0.0)

        return adaptive_langevin(gradient, start, key, steps=steps, step_size=step_size)

    return jax.vmap(chain)(betas, counts, step_sizes, keys)


_thetas = eqx.filter_jit(lambda target, v: jax.vmap(target.theta)(v))
_log_priors = eqx.filter_jit(lambda target, v: jax.vmap(target.log_prior)(v))


@eqx.filter_jit
def _scores(target: ScoreTarget, simulated: Float[Array, "chains k d_x"], weights: Float[Array, "chains n"]):
    return jax.vmap(lambda y, w: kernel_score(y, target.x, w, target.lengthscale))(simulated, weights)
