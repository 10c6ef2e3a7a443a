"""Saved and loaded posteriors, without their network."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from nsmbayes.calibration import CalibrationResult, SurrogateCheck
from nsmbayes.errors import InputError
from nsmbayes.posteriors.base import Posterior, Provenance
from nsmbayes.posteriors.empirical import Empirical
from nsmbayes.posteriors.influence import Influence
from nsmbayes.posteriors.sampled import SampledPosterior
from nsmbayes.posteriors.saving import RESULT_FIELDS
from nsmbayes.posteriors.schema import check_header, check_shapes, check_values, read_calibration
from nsmbayes.priors import GaussianPrior
from nsmbayes.samplers import Draws
from nsmbayes.weights.excess import Factor


class StoredPosterior(SampledPosterior):
    """A posterior that was saved and loaded: its draws, weights and certificate, without its network."""

    def __init__(
        self,
        provenance: Provenance,
        draws: Float[np.ndarray, "chains draws d"],
        x: Float[np.ndarray, "n d_x"],
        *,
        prior: GaussianPrior | Empirical,
        moments: tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]],
        gaussian: bool,
        weights: Float[np.ndarray, " n"],
        location_scatter: tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]] | None,
        influence: Influence | None,
        factor: Factor | None,
        beta: float,
        result: Draws | None,
        calibration: CalibrationResult | None,
        warnings: tuple[str, ...] | None,
        surrogate_check: SurrogateCheck | None,
    ):
        known: dict[str, Any] = {"result": result, "calibration": calibration, "surrogate_check": surrogate_check}
        super().__init__(provenance, None, draws, x, beta=beta, **known)
        self.prior = prior
        self.mean, self.covariance = moments
        self.gaussian, self._weights, self._location_scatter, self._influence = (
            gaussian, weights, location_scatter, influence,
        )  # fmt: skip
        self._factor = factor
        if warnings is not None:
            self.warnings = warnings

    @property
    def normalised(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether `log_prob` is available, which is the case for a posterior in closed form."""
        return self.gaussian

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The saved weight w(x_i) of each observation."""
        return self._weights

    def weight_at(self, x: Any) -> Float[np.ndarray, " k"]:
        """Not available for a stored posterior: raises `InputError`."""
        raise InputError("A stored posterior keeps the weights of its own observations only: build it again.")

    @property
    def location_scatter(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]:
        """The robust location and scatter of the observations."""
        return super().location_scatter if self._location_scatter is None else self._location_scatter

    def leave_one_out(self) -> Influence:
        """The saved KL(posterior || posterior without observation i)."""
        return super().leave_one_out() if self._influence is None else self._influence

    def factor_by_number(self) -> Factor | None:
        """The saved factors that downweight excess observations, or None."""
        return self._factor

    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Normalised log density, only for a posterior in closed form."""
        if not self.gaussian:
            raise InputError("A stored posterior has no network, hence no density: build it again with its method.")
        return GaussianPrior(self.mean, self.covariance).log_prob(self._thetas(theta))

    def _about_observations(self) -> str:
        return Posterior._about_observations(self)


def _kept(certificate: Any, _: Posterior) -> Any:
    """Return the saved certificate; stands in for the function that certifies."""
    return certificate


def load_posterior(
    header: dict[str, Any], arrays: dict[str, np.ndarray], read_certificate: Callable[[dict[str, Any]], Any]
) -> StoredPosterior:
    """Load the posterior that `posterior.save` wrote; `read_certificate` rebuilds its certificate."""

    check_shapes(header, {name: each.shape for name, each in arrays.items()})
    check_header(header, len(arrays["mean"]), arrays["x"].shape[1])
    check_values(arrays)
    array = arrays.__getitem__  # all arrays have been checked
    certificate, draws = read_certificate(header["certificate"]), array("draws")
    calibration = read_calibration(header["calibration"], arrays)
    result = None
    if "result.r_hat" in arrays:
        result = Draws(draws, *(array(f"result.{name}") for name in RESULT_FIELDS), note=header["note"] or "")
    influence = None
    if "influence.kl" in arrays:
        influence = Influence(array("influence.kl"), array("influence.reliable"))
    factor = None
    if "suspects.values" in arrays:
        n = len(array("x"))
        before = {"suspects.beyond": np.full(n, float(n)), "suspects.kept": np.ones(n)}  # files of earlier versions
        factor = Factor(*((before | arrays)[f"suspects.{name}"] for name in Factor._fields))
    return StoredPosterior(
        Provenance(
            header["posterior"],
            header["label"],
            tuple(header["parameter_names"]),
            functools.partial(_kept, certificate),
            None if header["x_names"] is None else tuple(header["x_names"]),
            dropped=header["dropped"],
        ),
        draws,
        array("x"),
        prior=Empirical(array("prior.draws"))
        if "prior.draws" in arrays
        else GaussianPrior(array("prior.mean"), array("prior.covariance")),
        moments=(array("mean"), array("covariance")),
        gaussian=header["gaussian"],
        weights=array("weights"),
        location_scatter=(array("location"), array("scatter")) if "location" in arrays else None,
        influence=influence,
        factor=factor,
        beta=header["beta"],
        result=result,
        calibration=calibration,
        warnings=None if header["warnings"] is None else tuple(header["warnings"]),
        surrogate_check=SurrogateCheck.from_numbers(array("surrogate_check")) if "surrogate_check" in arrays else None,
    )
