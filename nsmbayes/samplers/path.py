"""What one sweep of tempered sequential Monte Carlo leaves behind: particles at every learning rate."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from nsmbayes import _checks
from nsmbayes._checks import InputError


class Weighted(NamedTuple):
    """Particles with weights: a sample from the posterior at one learning rate."""

    beta: float
    """The learning rate."""
    particles: Float[np.ndarray, "N d"]
    """The particles."""
    weights: Float[np.ndarray, " N"]
    """Their weights, which add up to one."""
    ess: float
    """How many particles of equal weight would be worth as much. Do not use a sample whose ESS is small."""


class SMCPath(NamedTuple):
    """The particles at every learning rate that one sweep has passed; those of each stage have equal weights."""

    betas: Float[np.ndarray, " stages"]
    """The learning rates, from 0 (the prior) upwards."""
    particles: Float[np.ndarray, "stages N d"]
    """The particles after the moves of each stage."""
    losses: Float[np.ndarray, "stages N"]
    """Their losses; infinite where the loss has no finite value, which only draws from the prior can meet."""
    ess: Float[np.ndarray, " stages"]
    """Effective sample size after reweighting from the stage before, ahead of resampling and moves."""
    acceptance: Float[np.ndarray, " stages"]
    """Mean acceptance probability of the moves of each stage; 1 for the prior."""
    memory: Float[np.ndarray, " stages"]
    """Correlation of the particles' log densities before and after the moves of each stage; 0 for the prior."""
    founders: Float[np.ndarray, " stages"]
    """From how many particles, effectively, the population descends since it last forgot where it was.

    All N if the moves reach everything. Less if there are several modes, between which nothing moves: then a share p
    of the particles in one of them is known within a standard error of about sqrt(p (1 - p) / founders), and worse if
    some modes are so narrow that few draws from the prior have hit them: compare sweeps with different keys.
    """
    log_evidence: Float[np.ndarray, " stages"]
    """log of the prior mean of exp(-beta loss), as estimated by the sweep."""

    def at(self, beta: float) -> Weighted:
        """The posterior at `beta`: the particles of the nearest stage below, reweighted by exp(-(beta - beta_s) loss).

        Args:
            beta: a learning rate between 0 and the last one of the path.
        """
        beta = _checks.real(beta, "beta")
        if not 0 <= beta <= self.betas[-1]:
            raise InputError(
                f"`beta` must lie between 0 and {self.betas[-1]:g}, where this path ends; got {beta:g}. "
                "Run sample_smc up to a larger beta."
            )
        stage = np.searchsorted(self.betas, beta, side="right") - 1
        delta = beta - self.betas[stage]
        log_weights = -delta * self.losses[stage] if delta > 0 else np.zeros(self.losses.shape[1])
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        return Weighted(beta, self.particles[stage], weights, float(1 / (weights**2).sum()))
