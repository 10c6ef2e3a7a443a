"""GBI-SR: generalised Bayesian inference with the kernel score (Pacchiardi et al. 2024)."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nsmbayes._internal import checks
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.random import random_key
from nsmbayes.calibration import CalibrationResult, GridCalibration, ResampledProblem
from nsmbayes.diagnostics.kernels import kernel_lengthscale
from nsmbayes.errors import InputError
from nsmbayes.methods.baselines.score_chains import LangevinChains, PseudoMarginalChains, ScoreChains, ScoreTarget
from nsmbayes.methods.baselines.simulating import SimulatingMethod
from nsmbayes.posteriors import SampledPosterior
from nsmbayes.priors import constrain_rows
from nsmbayes.samplers import Draws, diagnose
from nsmbayes.simulators import require_differentiable


class GBISR(SimulatingMethod):
    """exp(-beta sum_i S(P_theta, x_i)) prior(theta), with the kernel score S estimated from simulations at theta.

    The kernel is bounded, so an outlier has a bounded effect on the posterior. The sampler is adaptive Langevin
    dynamics for a differentiable simulator, otherwise pseudo-marginal Metropolis-Hastings. The learning rate is chosen
    by Algorithm 3, which takes most of the simulations.

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        simulator: a `JaxSimulator`, a `NumpySimulator` or a task.
        simulations: simulations per estimate of the loss, n' in the paper.
        bootstrap_simulations: simulations per estimate during calibration, n'_b in the paper.
        bootstrap_draws: draws of each resampled posterior, M in the paper.
        minimiser_steps: steps of the descent to the minimiser of the loss, T in the paper. Without derivatives, the
            minimiser is replaced by the mean of this number of draws of the posterior at beta = 1.
        calibration: the `GridCalibration` that chooses the learning rate.
        warmup: steps that are discarded.
        draws: draws that are kept.
        groups: number of groups of simulations; a pseudo-marginal step redraws only one of them ("correlated"). With 1
            every step redraws all simulations.
        lengthscale: of the kernel; the median heuristic on the observations by default.
        options: those of `SimulatingMethod`: budget, parameter_names.

    Example:
        >>> import nsmbayes as nsm
        >>> task = nsm.tasks.get("gnk")
        >>> method = nsm.GBISR(task.prior, task, warmup=50, draws=50)
        >>> posterior = method.build_posterior(task.observe(20, seed=1).x, beta=1.0)
        >>> posterior.sample((3,), seed=0).shape, method.simulations_used
        ((3, 4), 2900)
    """

    name, label = "gbi-sr", "GBI-SR"

    def __init__(
        self,
        prior: Any,
        simulator: Any,
        *,
        simulations: int = 15,
        bootstrap_simulations: int = 7,
        bootstrap_draws: int = 200,
        minimiser_steps: int = 200,
        calibration: GridCalibration = GridCalibration(),  # noqa: B008 (frozen)
        warmup: int = 500,
        draws: int = 500,
        groups: int = 1,
        lengthscale: float | None = None,
        **options: Any,
    ):
        super().__init__(prior, simulator, **options)
        self.simulations = checks.integer(simulations, "simulations", at_least=2)
        self.bootstrap_simulations = checks.integer(bootstrap_simulations, "bootstrap_simulations", at_least=2)
        self.bootstrap_draws = checks.integer(bootstrap_draws, "bootstrap_draws", at_least=self.support.dim + 2)
        self.minimiser_steps = checks.integer(minimiser_steps, "minimiser_steps", at_least=10)
        # no other calibration: its number of posteriors must be known before the first simulation
        self.calibration: GridCalibration = checks.instance(
            calibration,
            "calibration",
            GridCalibration,
            "a GridCalibration, e.g. nsmbayes.calibration.GridCalibration()",
        )
        self.warmup = checks.integer(warmup, "warmup", at_least=1)
        self.draws = checks.integer(draws, "draws", at_least=10)
        self.groups = checks.integer(groups, "groups", at_least=1)
        if self.groups > 1 and self.simulator.differentiable:
            raise InputError("`groups` is for simulators without derivatives; leave it out.")
        self.lengthscale = checks.optional_positive(lengthscale, "lengthscale")

    def planned_simulations(self, n: int, *, calibrate: bool = True) -> int:
        """Number of simulator calls for one posterior; it does not depend on n."""
        resampled = len(self.calibration.betas) * self.calibration.bootstraps * self.bootstrap_draws
        before = (self.minimiser_steps + calibrate * resampled) * self.bootstrap_simulations
        return before + (self.warmup + self.draws) * self.simulations

    @classmethod
    def options_for_budget(cls, budget: int, n: int) -> dict[str, Any]:
        """Options that fit into a budget: calibration uses the simulations that the posterior does not need."""
        left = budget - 200 * 7 - 1000 * 15
        return {"bootstrap_draws": max(10, left // (3 * 20 * 7))}

    @double_precision
    def build_posterior(self, x: Any, *, beta: float | None = None, seed: int = 0) -> SampledPosterior:
        """Draw from the posterior given observations (n, d_x); `beta` is calibrated if it is not given."""
        x, key = self._observations(x), random_key(seed)
        lengthscale = kernel_lengthscale(x, "x", given=self.lengthscale)
        beta = checks.optional_positive(beta, "beta")
        self._charge(self.planned_simulations(len(x), calibrate=beta is None))
        key_start, key_boot, key_draw = jax.random.split(key, 3)
        target = ScoreTarget(self.support, *map(jnp.asarray, (*self._prior_moments(), x, lengthscale)))
        chains = self._chains(target, key_start)
        calibration: CalibrationResult | None = None
        if beta is None:
            problem = ResampledScore(
                chains, len(x), simulations=self.bootstrap_simulations, draws=self.bootstrap_draws, key=key_boot
            )
            calibration = self.calibration.calibrate(problem, seed=seed)
            beta = calibration.beta
        v, acceptance = chains.run(
            np.array([beta]),
            np.ones((1, len(x))),
            key_draw,
            simulations=self.simulations,
            warmup=self.warmup,
            draws=self.draws,
        )
        u = np.asarray(target.centre + v @ target.root.T)
        return SampledPosterior(
            self._provenance(),
            self.support,
            constrain_rows(self.support, u),
            x,
            beta=beta,
            result=Draws(u, acceptance, np.zeros(1, int), *diagnose(u)),
            calibration=calibration,
        )

    def _chains(self, target: ScoreTarget, key: Key[Array, ""]) -> ScoreChains:
        how = {"simulations": self.bootstrap_simulations, "steps": self.minimiser_steps}
        if self.simulator.differentiable:
            return LangevinChains.prepare(require_differentiable(self.simulator, self.label), target, key, **how)
        return PseudoMarginalChains.prepare(self.simulator, target, key, groups=self.groups, **how)


class ResampledScore(ResampledProblem):
    """Posteriors given resampled data: one chain per resample and learning rate, in units of the prior."""

    def __init__(self, chains: ScoreChains, n: int, *, simulations: int, draws: int, key: Key[Array, ""]):
        self.n = n
        self._chains, self._simulations, self._draws, self._key = chains, simulations, draws, key

    def minimiser(self) -> Float[np.ndarray, " d"]:
        """The minimiser of the loss of the full data, where all chains start."""
        return self._chains.start

    def draw_resampled(
        self, betas: Float[np.ndarray, " k"], counts: Int[np.ndarray, "resamples n"]
    ) -> Float[np.ndarray, "k resamples draws d"]:
        """Draw at each of k learning rates given each resample, a vector of counts of the observations."""
        positions, _ = self._chains.run(
            np.repeat(betas, len(counts)),
            np.tile(counts, (len(betas), 1)),
            self._key,
            simulations=self._simulations,
            warmup=0,
            draws=self._draws,
        )
        return positions.reshape(len(betas), len(counts), self._draws, -1)
