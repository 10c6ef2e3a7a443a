"""NSM-Bayes: robust inference with any twice differentiable surrogate and any prior."""

from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.caller import warn_user
from nsmbayes._internal.precision import double_precision
from nsmbayes._internal.processor import one_blas_thread
from nsmbayes._internal.waiting import stage, waiting
from nsmbayes.calibration import (
    Calibration,
    CompressedProblem,
    CountedProblem,
    PathCalibration,
    ReweightingCalibration,
    SampledProblem,
    SurrogateCheck,
    SurrogateTest,
    as_calibration,
)
from nsmbayes.errors import InputError
from nsmbayes.losses import DEFAULT_NOISE_LEVELS, NLESetting, NSMSetting, check_noise_levels
from nsmbayes.losses.cells import MANY_IN_LINE, Cells, CountedLoss
from nsmbayes.losses.held_out import HeldOut, density_gradients
from nsmbayes.losses.missing import MarginalSetting, MarginalWeighting
from nsmbayes.methods.likelihood import LikelihoodMethod
from nsmbayes.methods.missing import as_mixture, completed
from nsmbayes.methods.nle import PAPER_FLOW
from nsmbayes.methods.surrogate import FEWEST_HELD_OUT
from nsmbayes.posteriors import GeneralisedPosterior
from nsmbayes.priors import UnconstrainedPrior, constrain_rows
from nsmbayes.samplers import MANY, compress, trimmed_fit
from nsmbayes.scatter import ESTIMATORS, LocationScatter, beside_atoms, fit_guided, fit_location_scatter
from nsmbayes.surrogates import Density, MixtureDensity, NoisyFlow, require_smooth
from nsmbayes.suspects import Suspects, find_suspects, wider_for
from nsmbayes.training import Augment, correlated_noise
from nsmbayes.weights import IMQ, Excess, PlateauIMQ, Weight, Weighting, as_excess, as_weight

_GUESSED_FROM = 400  # maximum number of observations for the first guess of the parameter


class NSMBayes(LikelihoodMethod):
    """Robust generalised Bayesian inference with a neural score-matching loss.

    The surrogate is trained as for NLE. The loss is the weighted score-matching loss, summed over noise levels
    (`losses.noise_levels`) and computed in coordinates whitened by the robust location and scatter of the observations.
    With noise levels, beta = 1 is the natural learning rate; calibration can only lower it. `noise_levels=(0,)` is the
    paper's loss. With other noise levels, surrogate="maf" is a flow that takes the noise level as an input and is
    trained on noisy data (`surrogates.NoisyFlow`).

    Args:
        prior: a `GaussianPrior`, an `IndependentPrior`, or a continuous distribution of numpyro, torch or scipy.
        weight: weight of an observation as a function of its distance from the bulk. By default it is full up to two
            robust standard deviations, and smaller at every noise level beyond twelve. With several columns, the first
            radius contains the same fraction of Gaussian observations, and the second is ten larger. With `excess` both
            radii grow to contain 99 % of the fitted model's own observations; a weight without `columns` is unchanged.
        scatter: estimator of location and scatter for the weight. "guided" (default) is "mcd" for one column. For more,
            it is shrunk towards the surrogate's own scatter at a robust first guess of the parameter
            (`scatter.fit_guided`), so that it stays reliable with few observations or a tight group of outliers. The
            scatter of a flow is not known in closed form: median absolute deviations replace it. Others: "mcd", "mad",
            "sample" (not robust).
        excess: downweights observations where there are more than the fitted model explains (`weights.Excess`): a
            cluster, a stuck sensor, a second population. None for weights by distance alone, as in the paper and for
            all surrogates that are not Gaussian mixtures.
        noise_levels: noise levels in units of the robust scale of the observations, or (0,).
        whiten: whether to compute the loss in whitened coordinates; False for the user's units, as in the paper.
        calibration: how beta is chosen if `build_posterior` does not get one: a `PathCalibration` (default), a
            `ReweightingCalibration` (the paper's Algorithm 2), or None for beta = 1.

    Example:
        >>> import nsmbayes as nsm
        >>> method = nsm.NSMBayes(nsm.tasks.get("gnk").prior, weight=nsm.weights.IMQ(zeta=2.0))
        >>> method.noise_levels[0]
        0.1
    """

    name, label = "nsm-bayes", "NSM-Bayes"
    default_weight = PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0, columns=1)

    def __init__(
        self,
        prior: Any,
        *,
        weight: Weight | None = None,
        scatter: str = "guided",
        excess: Excess | None = Excess(),  # noqa: B008 (frozen)
        noise_levels: tuple[float, ...] = DEFAULT_NOISE_LEVELS,
        whiten: bool = True,
        calibration: Calibration[SampledProblem] | None = PathCalibration(),  # noqa: B008 (frozen)
        **options: Any,
    ):
        super().__init__(prior, **options)
        self.weight = as_weight(weight if weight is not None else self.default_weight)
        self.scatter = checks.choice(scatter, "scatter", ("guided", *ESTIMATORS))
        self.excess = as_excess(excess)
        self.noise_levels = tuple(check_noise_levels(noise_levels).tolist())
        self.whiten = checks.flag(whiten, "whiten")
        if calibration is not None:
            as_calibration(calibration, SampledProblem, "e.g. nsmbayes.calibration.PathCalibration() or None")
        self.calibration = calibration

    @classmethod
    def paper(cls, prior: Any, *, initial_beta: float = 1.0, **options: Any) -> Self:
        """The paper's settings: the flow and sampler of `NLE.paper`, IMQ with zeta = 1, raw x, Algorithm 2."""
        choices: dict[str, Any] = {
            "surrogate": PAPER_FLOW,
            "scaling": "zscore",
            "sampler": "slice",
            "warmup": 500,
            "weight": IMQ(zeta=1.0),
            "scatter": "mcd",
            "excess": None,
            "noise_levels": (0.0,),
            "whiten": False,
            "calibration": ReweightingCalibration(initial_beta=initial_beta),
        }
        return cls(prior, **(choices | options))

    def build_posterior(
        self,
        x: Any,
        *,
        beta: float | None = None,
        weight: Weight | None = None,
        missing: str | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> GeneralisedPosterior:
        """Build the posterior given observations `x` of shape (n, d_x), without further simulation or training.

        With several columns, more than 500 observations are represented by a weighted subset. The posterior measures
        how well the loss of the subset reproduces the full loss: see its `compression` and its summary. With one
        column, more than 5,000 observations are counted in cells a tenth as wide as the smallest noise level.

        Args:
            x: the observations, outliers included.
            beta: the learning rate; by default it is calibrated.
            weight: replaces the method's weight.
            missing: "marginalise" if NaN cells of `x` were not observed. They are integrated out exactly if the
                surrogate is a mixture, and each row is weighted by its observed columns.
            seed: for the sampler and the calibration.
            progress: whether to print the current step on a terminal once it has taken two seconds.
        """
        x, seed = self._observations(x, missing), checks.integer(seed, "seed")
        with waiting("posterior", progress=progress), one_blas_thread():
            return self._sampled(x, beta, weight, seed)

    def _sampled(
        self, x: Float[np.ndarray, "n d_x"], beta: float | None, weight: Weight | None, seed: int
    ) -> GeneralisedPosterior:
        dequantised = self._dequantise(x, seed, 1)
        if self._weight(x, weight).decays:
            dequantised = self._reined_in(dequantised)
        if np.isnan(x).any():
            return self._with_missing(x, dequantised, beta, weight, seed)
        suspects = self._suspects(dequantised, seed)
        setting = self.setting(dequantised, weight, suspects)
        counts = None if suspects is None else suspects.factor.values
        chosen = 1.0 if beta is None else checks.positive(beta, "beta")
        near, compression = None if suspects is None else suspects.near, None
        if len(x) > MANY and x.shape[1] > 1:
            found = compress(self.support, setting, dequantised, beta=chosen, seed=seed, multiples=counts, near=near)
            problem = CompressedProblem(self.support, found, self.sampler)
        elif len(x) > MANY_IN_LINE and x.shape[1] == 1 and self.noise_levels[0] > 0:
            cells = Cells.of(dequantised, setting.weighting.centre, self.noise_levels[0])
            compression = CountedLoss.of(setting, cells, counts)
            problem = CountedProblem(self.support, compression, self.sampler, near)
        else:
            loss = setting.loss(dequantised)
            loss = loss if counts is None else loss.reweighted(counts)
            problem = SampledProblem(self.support, loss, len(x), self.sampler, near)
        result = lower = None
        if beta is None and self.calibration is not None:
            result, lower = self.calibration.calibrate(problem, seed=seed), wider_for(suspects)
            chosen = result.beta
        test = self._test_for(setting, dequantised, counts)
        check, chosen = self._checked(problem, self.support, chosen, seed, lower=lower, test=test)
        if isinstance(problem, CompressedProblem):
            compression = problem.check(chosen, seed)
        return self._posterior(
            x,
            dequantised,
            setting,
            problem,
            beta=chosen,
            calibration=result,
            seed=seed,
            compression=compression,
            suspects=suspects,
            by_distance=self.excess is not None and suspects is None,
            surrogate_check=check,
        )

    def _checked(
        self,
        problem: SampledProblem,
        prior: UnconstrainedPrior,
        beta: float,
        seed: int,
        *,
        lower: float | None,
        test: SurrogateTest | None = None,
    ) -> tuple[SurrogateCheck | None, float]:
        """Check the surrogate near the posterior on held-out simulations; return the check and the learning rate.

        `lower` is the factor by which other effects increase the variances; with None the learning rate is unchanged,
        otherwise it is lowered for both. If `test` has enough simulations near the posterior, it corrects the loss.
        """
        theta = constrain_rows(prior, problem.rough(beta, seed, final=lower is None))
        stage("checking the surrogate")
        covariance = np.atleast_2d(np.cov(theta.T))
        facts = (theta.mean(axis=0), covariance, problem.n, beta * covariance)
        check = None if test is None else test.correct(*facts)
        if check is None:
            if (general := self.surrogate_test()) is None:
                return None, beta / (1.0 if lower is None else lower)
            check = general.check(*facts)
        if (correction := check.total) is not None:
            problem.correct(correction, beta, seed)
        return (check, beta) if lower is None else (check._replace(applied=True), beta / (check.wider + lower - 1))

    def _held_out_gradients(self, held_out: HeldOut) -> Float[np.ndarray, "m d_theta"] | None:
        if not isinstance(self.density, MixtureDensity) or not self.whiten:
            return None
        return density_gradients(self.density, self._weight(held_out.x, None), self.noise_levels, held_out)

    def _test_for(
        self, setting: NSMSetting, x: Float[np.ndarray, "n d_x"], multiples: Float[np.ndarray, " n"] | None
    ) -> SurrogateTest | None:
        """Test of the surrogate by the loss of one data set, with the coordinates and weights of that data set."""
        density, held_out, weighting = self.density, self._held_out, setting.weighting
        if held_out is None or not self.whiten or not isinstance(density, MixtureDensity):
            return None
        trusted = float(np.mean(weighting.at(x) * (1.0 if multiples is None else multiples)))
        if len(held_out.theta) < FEWEST_HELD_OUT or not trusted > 0:
            return None

        def gradients(rows: Int[np.ndarray, " k"]) -> Float[np.ndarray, "k d_theta"]:
            some = HeldOut(held_out.theta[rows], held_out.x[rows])
            return density_gradients(density, weighting.weight, self.noise_levels, some, centre=weighting.centre)

        return SurrogateTest(held_out.theta, gradients, weighting.at(held_out.x) / trusted)

    def _with_missing(
        self,
        x: Float[np.ndarray, "n d_x"],
        dequantised: Float[np.ndarray, "n d_x"],
        beta: float | None,
        weight: Weight | None,
        seed: int,
    ) -> GeneralisedPosterior:
        """Build the posterior of observations with missing cells; see `losses.missing`."""
        density = as_mixture(self.density)
        whole = completed(self.support, density, dequantised, seed)
        suspects = self._suspects(whole, seed)
        weighting = MarginalWeighting(*self._weighting(whole, weight, suspects))
        setting = MarginalSetting(density, weighting, self.noise_levels, self.whiten)
        loss, near = setting.loss(dequantised), None
        if suspects is not None:
            loss, near = loss.reweighted(suspects.factor.values), suspects.near
        problem = SampledProblem(self.support, loss, len(x), self.sampler, near)
        chosen, result, lower = 1.0 if beta is None else checks.positive(beta, "beta"), None, None
        if beta is None and self.calibration is not None:
            result, lower = self.calibration.calibrate(problem, seed=seed), wider_for(suspects)
            chosen = result.beta
        check, chosen = self._checked(problem, self.support, chosen, seed, lower=lower)
        options: dict[str, Any] = {"calibration": result, "suspects": suspects, "surrogate_check": check}
        return self._posterior(x, dequantised, setting, problem, beta=chosen, seed=seed, **options)

    def setting(
        self, x: Float[np.ndarray, "n d_x"], weight: Weight | None = None, suspects: Suspects | None = None
    ) -> NSMSetting:
        """Return the loss setting whose weight and coordinates are fitted to observations `x` and to `suspects`."""
        return NSMSetting.of(self.density, self._weighting(x, weight, suspects), self.noise_levels, whiten=self.whiten)

    def _weighting(self, x: Float[np.ndarray, "n d_x"], weight: Weight | None, suspects: Suspects | None) -> Weighting:
        chosen = self._weight(x, weight)
        if suspects is None:
            return Weighting(chosen, self._location_scatter(x))
        return Weighting(chosen.reaching(suspects.reach), suspects.centre)

    def _weight(self, x: Float[np.ndarray, "n d_x"], weight: Weight | None) -> Weight:
        return (self.weight if weight is None else as_weight(weight)).for_columns(x.shape[1])

    def _suspects(self, x: Float[np.ndarray, "n d_x"], seed: int) -> Suspects | None:
        """Search for excess observations; None if `excess` is off or the surrogate is not a Gaussian mixture."""
        if self.excess is None or not isinstance(self.density, MixtureDensity):
            return None
        return find_suspects(self.excess, self.support, self.density, x, self._location_scatter, seed)

    def _location_scatter(self, x: Float[np.ndarray, "n d_x"]) -> LocationScatter:
        centre = self._fitted_centre(x)
        if self.grid_steps is None:
            return centre
        centre, columns = beside_atoms(x, self.grid_steps, centre)
        if columns:
            warn_user(
                f"More than half of the values of column {checks.shown(np.asarray(columns))} are the same: distances "
                "are measured by the scale of the others.",
            )
        return centre

    @double_precision
    def _fitted_centre(self, x: Float[np.ndarray, "n d_x"]) -> LocationScatter:
        if self.scatter != "guided":
            return fit_location_scatter(x, estimator=self.scatter)
        if x.shape[1] == 1:
            return fit_location_scatter(x)
        some = x[np.random.default_rng(0).permutation(len(x))[:_GUESSED_FROM]]
        guess = trimmed_fit(self.support, NLESetting.of(self.density, x.shape[1]).loss(some), seed=0)
        moments = self.density.moments(jnp.asarray(guess))
        return fit_guided(x, None if moments is None else np.asarray(moments.covariance))

    @property
    def _noise(self) -> tuple[float, float] | None:
        if self.noise_levels == (0.0,) or not self.surrogate.needs_noise():
            return None
        return self.noise_levels[0], self.noise_levels[-1]

    def _augment(self) -> Augment | None:
        return None if self._noise is None else correlated_noise(*self._noise)

    def _check_noise(self, density: Density) -> None:
        if self.noise_levels == (0.0,):
            return
        if not density.smoothable:
            raise InputError(
                f"A {type(density).__name__} cannot be smoothed exactly, and this method has noise levels. Build it "
                "with NSMBayes(prior, noise_levels=(0,)), use a Gaussian mixture, or train a flow with noise: "
                "NSMBayes(prior, surrogate='maf')."
            )
        if isinstance(density, NoisyFlow):
            low, high = density.levels
            if self.noise_levels[0] < low or self.noise_levels[-1] > high:
                raise InputError(
                    f"`noise_levels` go from {self.noise_levels[0]:g} to {self.noise_levels[-1]:g}, but the flow was "
                    f"trained with noise from {low:g} to {high:g}. Choose levels within that, or train again."
                )

    def _check_density(self, density: Density, theta: Float[np.ndarray, "m d"], x: Float[np.ndarray, "m d_x"]) -> None:
        require_smooth(density, theta, x)

    def config(self) -> dict[str, Any]:
        """Return the constructor's arguments, except the prior."""
        names = ("weight", "scatter", "excess", "noise_levels", "whiten", "calibration")
        return super().config() | {name: getattr(self, name) for name in names}
