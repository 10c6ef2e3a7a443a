"""The base class of all posteriors."""

import functools
import textwrap
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from nsmbayes._internal import checks
from nsmbayes._internal.columns import Names, data_frame, named_matrix
from nsmbayes._internal.text import escape, shorten
from nsmbayes.calibration import CalibrationResult, SurrogateCheck
from nsmbayes.errors import InputError
from nsmbayes.posteriors.caveats import warnings_about, wrapped
from nsmbayes.posteriors.influence import Influence
from nsmbayes.posteriors.outliers import SHOWN, Outlier, reasons_by_number
from nsmbayes.posteriors.provenance import Provenance
from nsmbayes.posteriors.saving import save_posterior
from nsmbayes.posteriors.sensitivity import Sensitivity, Variations, sensitivity_of
from nsmbayes.posteriors.workflow import SummaryText, Workflow
from nsmbayes.scatter import fit_location_scatter
from nsmbayes.suspects import Suspects
from nsmbayes.weights.excess import Factor

LOW_WEIGHT = 0.1
"""Weights below this value are reported as low."""


class Posterior(Workflow, ABC):
    """A distribution over parameters given observations.

    Every posterior has `mean` and `covariance`, `x` (the observations), `beta` (the learning rate) and `calibration`
    (how it was chosen, or None).
    """

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]
    suspects: Suspects | None = None
    """Excess observations, more than the model explains; None if there was no search for them."""

    def __init__(
        self,
        provenance: Provenance,
        beta: float,
        calibration: CalibrationResult | None,
        surrogate_check: SurrogateCheck | None = None,
    ):
        self.provenance, self.beta, self.calibration = provenance, beta, calibration
        self.surrogate_check = surrogate_check
        """Error of the surrogate near this posterior, from held-out simulations; None if there are none."""

    # --- identity ---

    @property
    def method(self) -> str:
        """The name of the method on the command line."""
        return self.provenance.method

    @property
    def label(self) -> str:
        """The name of the method in text for readers."""
        return self.provenance.label

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """One name per parameter."""
        return self.provenance.parameter_names

    @property
    def x_names(self) -> Names:
        """One name per column of x, or None if the columns have no names."""
        return self.provenance.x_names

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.parameter_names)

    @property
    @abstractmethod
    def x(self) -> Float[np.ndarray, "n d_x"]:
        """The observations."""

    @property
    def n(self) -> int:
        """Number of observations."""
        return len(self.x)

    prior: Any
    """The prior, for tables and plots: an object with `mean`, `std` and `marginal`."""

    @property
    @abstractmethod
    def converged(self) -> bool:
        """Whether the sampler has converged, so that the results describe the posterior."""

    # --- the distribution ---

    @property
    def std(self) -> Float[np.ndarray, " d"]:
        """Marginal standard deviations."""
        return np.sqrt(np.diag(self.covariance))

    @abstractmethod
    def sample(self, shape: tuple[int, ...] | int, seed: int = 0) -> Float[np.ndarray, "... d"]:
        """Return draws of shape `shape + (d,)`."""

    @abstractmethod
    def chains(self, draws: int, chains: int, seed: int) -> Float[np.ndarray, "chains draws d"]:
        """Return draws by chain: those of the sampler unchanged, or independent draws."""

    @abstractmethod
    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Log density at points of shape (..., d); `normalised` says whether the density integrates to one."""

    normalised: bool = False
    """Whether `log_prob` is the log of a normalised density."""

    @abstractmethod
    def marginal(self, j: int, grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Density of parameter j on a grid."""

    @abstractmethod
    def interval(self, j: int, level: float = 0.95) -> tuple[float, float]:
        """The central interval of parameter j with probability `level`."""

    @abstractmethod
    def contains(self, theta: Any, level: float = 0.95) -> Bool[np.ndarray, "..."]:
        """Whether points of shape (..., d) lie in the central region of probability `level`."""

    @abstractmethod
    def mse(self, theta_true: Any) -> float:
        """E |theta - theta_true|^2 under the posterior."""

    # --- other data, prior and learning rate ---

    def update(self, *_: Any, **__: Any) -> "Posterior":
        """Return the posterior with additional observations; only NSMBayesAmortised and NSMBayesConj support it."""
        raise self._no_sums("observations", "build it again from all of them: method.build_posterior(x_old_and_new)")

    def with_prior(self, *_: Any, **__: Any) -> "Posterior":
        """Return the posterior for another prior; only NSMBayesAmortised and NSMBayesConj support it."""
        adopt = "give a method with that prior the same network: type(method)(prior).adopt(method).build_posterior(x)"
        raise self._no_sums("prior", adopt)

    def with_beta(self, *_: Any, **__: Any) -> "Posterior":
        """Return the posterior for another learning rate; only NSMBayesAmortised and NSMBayesConj support it."""
        raise self._no_sums("learning rate", "build it again: method.build_posterior(x, beta=beta)")

    def _no_sums(self, what: str, remedy: str) -> InputError:
        return InputError(
            f"This posterior of {self.label} is known by its draws, which cannot be changed for other {what}. You can "
            f"{remedy}. Posteriors of NSMBayesConj, and those that NSMBayesAmortised builds one by one, support this."
        )

    # --- the observations ---

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """The weight w(x_i) of each observation, between 0 (ignored) and 1 (full); 1 for methods without weights."""
        return self.weight_at(self.x)

    def weight_at(self, x: Any) -> Float[np.ndarray, " k"]:
        """The weight that observations with other values would have."""
        return np.ones(len(self.points(x)))

    @property
    def location_scatter(self) -> tuple[Float[np.ndarray, " d_x"], Float[np.ndarray, "d_x d_x"]]:
        """The robust location and scatter of the observations, which define the distances."""
        centre = fit_location_scatter(self.x)
        return np.asarray(centre.location), np.asarray(centre.scatter)

    def leave_one_out(self) -> Influence:
        """KL(posterior || posterior without observation i) for every i; weights of the others are unchanged."""
        raise InputError(
            f"{self.label} has no loss that is a sum over observations, so that leaving one out means running it again."
        )

    def influence(self) -> Float[np.ndarray, " n"]:
        """The KL divergences of `leave_one_out`."""
        return self.leave_one_out().kl

    def outliers(self, count: int = SHOWN) -> list[Outlier]:
        """The observations with the smallest weights, at most `count` of them, with reasons and influence."""
        rows = np.argsort(weights := self.weights, kind="stable")[: checks.integer(count, "count", at_least=1)]
        try:
            kl, reliable = self._influence_of(rows)
        except InputError:
            kl, reliable = np.full(len(rows), np.nan), np.zeros(len(rows), bool)
        reasons = self._reasons(rows)
        return [
            Outlier(
                row=int(i),
                value=self.x[i],
                weight=float(weights[i]),
                reason=reasons[k],
                influence=float(kl[k]),
                reliable=bool(reliable[k]),
            )
            for k, i in enumerate(rows)
        ]

    def _reasons(self, rows: Int[np.ndarray, " k"]) -> list[str]:
        """Reason for the low weight of each observation in `rows`; an empty string if its weight is not low."""
        factor, weights = self.factor_by_number(), self.weights[rows]
        if factor is None:
            return ["far from the bulk" if weight < LOW_WEIGHT else "" for weight in weights]
        return reasons_by_number(factor, self.x, rows, weights < LOW_WEIGHT * factor.values[rows])

    def factor_by_number(self) -> Factor | None:
        """Factors that downweight excess observations; None if there was no search for them."""
        return None if self.suspects is None else self.suspects.factor

    def _influence_of(self, rows: Int[np.ndarray, " k"]) -> Influence:
        """The results of `leave_one_out` for some observations."""
        return Influence(*(each[rows] for each in self.leave_one_out()))

    def sensitivity(self, *, refit: bool = True, seed: int = 0) -> Sensitivity:
        """Sensitivity of the posterior to small changes of prior, learning rate, weight and noise levels.

        A posterior in closed form is recomputed. Draws are reweighted; with `refit`, they are sampled again if the
        importance weights are unreliable. Location, scatter and the factors of excess observations are unchanged. See
        docs/calibration-map.md.
        """
        return sensitivity_of(self, self._variations(checks.integer(seed, "seed")), checks.flag(refit, "refit"))

    def _variations(self, seed: int) -> Variations:
        raise InputError(f"{self.label} has no prior density and no loss that could be evaluated at other choices.")

    def points(self, x: Any, name: str = "x", *, note: bool = False) -> Float[np.ndarray, "k d_x"]:
        """Convert other observations to a matrix: an array, or a DataFrame with the known columns in any order.

        With `note`, columns without names cause a warning if the posterior's own observations have names.
        """
        width, like = self.x.shape[1], "columns, like the observations"
        of, missing = "its observations", bool(np.isnan(self.x).any())
        return named_matrix(x, name, self.x_names, width=width, width_is=like, of=of, note=note, missing=missing)

    def _thetas(self, theta: Any) -> Float[np.ndarray, "... d"]:
        theta = checks.finite_array(theta, "theta")
        if theta.ndim == 0 or theta.shape[-1] != self.dim:
            raise InputError(f"`theta` must have shape (..., {self.dim}); got {theta.shape}.")
        return theta

    # --- certificate, warnings, summary ---

    @functools.cached_property
    def certificate(self) -> Any:
        """Proved statements about the robustness of this posterior: an `nsmbayes.robustness.Certificate`.

        It is computed on first use, in one or two seconds.
        """
        return self.provenance.certify(self)

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about this posterior, in plain sentences; empty if there are none.

        docs/warnings.md explains each of them, and what to do.
        """
        return warnings_about(self)

    def summary(self, *, as_frame: bool = False) -> Any:
        """A table of the marginals, with notes on observations, robustness, warnings and learning rate.

        The result is text; with `as_frame` only the table, as a pandas DataFrame with one row per parameter.
        """
        columns = self._table()
        if checks.flag(as_frame, "as_frame"):
            return data_frame(columns | self._extra(), self.parameter_names)
        lines = [
            f"{shorten(self.label)} posterior from {self.n} observations, beta = {self.beta:.4g}",
            f"{'parameter':<12}" + "".join(f"{name:>10}" for name in columns) + self._more_columns(),
        ]
        for j, name in enumerate(self.parameter_names):
            numbers = "".join(f"{values[j]:>10.3f}" for values in columns.values())
            lines.append(f"{shorten(name):<12}{numbers}{self._more_columns(j)}")
        lines += [self._about_observations(), *self._about_bulk(), self.certificate.wrapped()]
        lines += [*map(wrapped, self.warnings)]
        lines += [textwrap.fill(line, 110) for note in self._notes() for line in note.splitlines()]
        if self.calibration is not None:
            lines.append(self.calibration.wrapped())
        if self.surrogate_check is not None:
            lines.append(self.surrogate_check.wrapped())
        if self.provenance.dropped:
            lines.append(self.about_dropped)
        return SummaryText(escape("\n".join(lines), keep="\n"))

    def _table(self) -> dict[str, Float[np.ndarray, " d"]]:
        """The columns of the summary, one entry per parameter."""
        columns = {"mean": self.mean, "sd": self.std}
        columns |= dict(zip(("2.5 %", "97.5 %"), np.array([self.interval(j) for j in range(self.dim)]).T, strict=True))
        return columns | {"prior sd": self.prior.std}

    @property
    def about_dropped(self) -> str:
        """A sentence about dropped simulations, and what they mean for the likelihood."""
        return (
            f"{self.provenance.dropped:.2%} of the simulations failed and were dropped:\nthe likelihood is that of "
            "observations for which the simulator does not fail."
        )

    def _extra(self) -> dict[str, Float[np.ndarray, " d"]]:
        """Additional columns of the frame: sampler diagnostics."""
        return {}

    def _more_columns(self, j: int | None = None) -> str:
        """Additional columns in the text of the table: of the header, or of the row of parameter j."""
        return ""

    def _about_observations(self) -> str:
        weights = self.weights
        low = int((weights < LOW_WEIGHT).sum())
        return (
            f"{low:,} of {len(weights):,} observations have a weight below {LOW_WEIGHT} (smallest {weights.min():.2g})."
        )

    def _notes(self) -> list[str]:
        """Additional notes for the summary."""
        return []

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the posterior as a folder (JSON and safetensors), which `nsmbayes.load` reads.

        Draws, moments, observations, weights and the certificate are saved, the network is not. A loaded posterior
        cannot do what needs the network: other data, other learning rates, `log_prob` of a sampled posterior.
        """
        return save_posterior(self, path, overwrite=overwrite)

    def __repr__(self) -> str:
        kind = type(self).__name__
        return f"{kind}({self.label}, mean={self.mean}, sd={self.std}, n={self.n}, beta={self.beta:.4g})"
