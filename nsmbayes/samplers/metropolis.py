"""Independence Metropolis-Hastings chains, and importance weights of their proposals."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from nsmbayes.samplers.students import Population, StudentMixture, log_sum_exp

Evaluate = Callable[[Float[np.ndarray, "n d"]], tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]]
"""A function that returns log densities of the prior and losses at many positions."""


class Chains(NamedTuple):
    """Chains whose proposals do not depend on their current position."""

    proposal: StudentMixture
    beta: float
    last: Float[np.ndarray, "chains d"]
    positions: Float[np.ndarray, "chains draws d"]
    accepted: Bool[np.ndarray, "chains draws"]
    tried: tuple[np.ndarray, ...]
    """The proposals of the last call of `extended`, with their log densities of the prior and their losses."""

    @classmethod
    def begun(cls, population: Population, chains: int, beta: float, rng: np.random.Generator) -> "Chains":
        """Chains that start at draws of the population, without a step yet."""
        log_weights, d = log_weights_of(population, beta), population.positions.shape[1]
        begin = rng.choice(len(log_weights), chains, p=np.exp(log_weights - log_sum_exp(log_weights)))
        start, nothing = population.positions[begin], np.empty((chains, 0))
        return cls(population.best, beta, start, nothing[..., None].repeat(d, 2), nothing.astype(bool), ())

    def extended(self, evaluate: Evaluate, draws: int, rng: np.random.Generator) -> "Chains":
        """The chains with `draws` more draws each, by the Metropolis-Hastings rule."""
        chains, d = self.last.shape
        proposals = self.proposal.sample(chains * draws, rng).reshape(chains, draws, d)
        states = np.concatenate([self.last[:, None], proposals], axis=1)
        flat = states.reshape(-1, d)
        log_priors, losses = evaluate(flat)
        log_ratios = _log_target(log_priors, losses, self.beta) - self.proposal.log_prob(flat)
        accepted = _accept(log_ratios.reshape(chains, -1), np.log(rng.random((chains, draws))))
        last = np.maximum.accumulate(np.where(accepted, np.arange(draws + 1), 0), axis=1)[:, 1:]
        new = np.take_along_axis(states, last[..., None], axis=1)
        log_priors, losses = (each.reshape(chains, -1)[:, 1:].ravel() for each in (log_priors, losses))
        return self._replace(
            last=new[:, -1],
            positions=np.concatenate([self.positions, new], axis=1),
            accepted=np.concatenate([self.accepted, accepted[:, 1:]], axis=1),
            tried=(proposals.reshape(-1, d), log_priors, losses),
        )


def _log_target(log_priors: np.ndarray, losses: np.ndarray, beta: float) -> np.ndarray:
    possible = np.isfinite(losses) & np.isfinite(log_priors)
    return np.where(possible, np.where(possible, log_priors, 0) - beta * np.where(possible, losses, 0), -np.inf)


def log_weights_of(population: Population, beta: float) -> Float[np.ndarray, " k"]:
    """Log importance weights of a population for the posterior at learning rate `beta`; not normalised."""
    return _log_target(population.log_priors, population.losses, beta) - population.log_proposals


def _accept(
    log_ratios: Float[np.ndarray, "chains draws+1"], log_uniforms: Float[np.ndarray, "chains draws"]
) -> Bool[np.ndarray, "chains draws+1"]:
    """Which of the proposed states each chain accepts; the first state always."""
    accepted = np.ones(log_ratios.shape, bool)
    for chain, (ratios, uniforms) in enumerate(zip(log_ratios.tolist(), log_uniforms.tolist(), strict=True)):
        now, steps = ratios[0], []
        for ratio, uniform in zip(ratios[1:], uniforms, strict=True):  # in NumPy each step would take ten times longer
            steps.append(uniform < ratio - now)
            now = ratio if steps[-1] else now
        accepted[chain, 1:] = steps
    return accepted
