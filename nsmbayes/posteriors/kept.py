"""Statistics of a data set: sums over its observations, which determine the posterior without the observations."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from nsmbayes._internal import checks
from nsmbayes._internal.parallel import map_rows
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.losses import Loss, check_noise_levels
from nsmbayes.losses.corrected import Correction, corrected
from nsmbayes.losses.interpolated import InterpolatedLoss, Interpolation
from nsmbayes.posteriors.base import Provenance
from nsmbayes.posteriors.sampled import SampledPosterior
from nsmbayes.priors import UnconstrainedPrior, constrain_rows, unconstrain_rows
from nsmbayes.samplers import Draws, Sampler, Target, log_density
from nsmbayes.serialisation import model_arrays, require_array, write_model
from nsmbayes.surrogates import Frame, MixtureDensity

_ARRAYS = ("offset", "basis", "references", "sizes", "design", "projector", "A", "B")
_CORRECTION = "correction"  # an additional array, in the files of this version


class KeptStatistics(NamedTuple):
    """Sums over the observations of a data set, and the arrays that give the loss at any theta."""

    n: int
    """Number of observations."""
    beta: float
    """The learning rate of the original posterior."""
    network: str
    """Fingerprint of the surrogate."""
    noise_levels: tuple[float, ...]
    arrays: dict[str, np.ndarray]

    @classmethod
    def of(cls, loss: InterpolatedLoss, n: int, beta: float, correction: Correction | None = None) -> "KeptStatistics":
        """Extract the statistics from a loss; `correction` corrects the loss for the surrogate's error."""
        one = loss.interpolation
        parts = (*one.frame, one.references, one.sizes, one.design, one.projector, loss.A, loss.B)
        arrays: dict[str, np.ndarray] = dict(zip(_ARRAYS, map(np.asarray, parts), strict=True))
        arrays[_CORRECTION] = (
            np.zeros(2 * one.references.shape[1] + 1) if correction is None else correction.as_numbers()
        )
        return cls(n, beta, fingerprint(one.surrogate), one.noise_levels, arrays)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Save the statistics as a folder (JSON and safetensors), which `nsmbayes.load` reads, without observations.

        This is not anonymisation: sums over very few observations reveal much about each of them.
        """
        header = {name: getattr(self, name) for name in ("n", "beta", "network")}
        header |= {"statistics": "nsm-bayes-amortised", "noise_levels": list(self.noise_levels)}
        return write_model(path, header, self.arrays, overwrite=overwrite)

    @classmethod
    def from_saved(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> "KeptStatistics":
        """Rebuild the statistics from the files of `save`."""
        levels = tuple(check_noise_levels(header.get("noise_levels")).tolist())
        d, (k, p) = (
            len(require_array(arrays, "offset", (None,))),
            require_array(arrays, "references", (None, None)).shape,
        )
        m = require_array(arrays, "design", (len(levels), None, d)).shape[1]
        shapes = {
            "offset": (d,), "basis": (d, d), "references": (k, p), "sizes": (len(levels), k),
            "design": (len(levels), m, d), "projector": (len(levels), k, m * d), "A": (len(levels), k, k),
            "B": (len(levels), k), _CORRECTION: (2 * p + 1,),
        }  # fmt: skip
        found = {name: require_array(arrays, name, shape) for name, shape in shapes.items()}
        if not (np.linalg.det(found["basis"]) != 0 and (found["sizes"] > 0).all()):
            raise InputError("The saved statistics have no coordinates: they were not written by nsmbayes.")
        n = checks.integer(header.get("n"), "n", at_least=1)
        return cls(n, checks.positive(header.get("beta"), "beta"), str(header.get("network")), levels, found)

    @double_precision
    def loss(self, density: MixtureDensity) -> Loss:
        """The loss of the data set; `density` must be the surrogate that the statistics were computed with."""
        if fingerprint(density) != self.network:
            raise InputError(
                "`statistics` were computed with another network: load the method that they were computed with."
            )
        offset, basis, references, sizes, design, projector, A, B = (jnp.asarray(self.arrays[name]) for name in _ARRAYS)
        frame = Frame(offset, basis)
        interpolation = Interpolation(
            density, frame, references, sizes, design, projector, noise_levels=self.noise_levels
        )
        return corrected(InterpolatedLoss(interpolation, A, B), Correction.from_numbers(self.arrays[_CORRECTION]))


def fingerprint(surrogate: Any) -> str:
    """Hash of the parameters of a network."""
    digest = hashlib.sha256()
    for name, array in sorted(model_arrays(surrogate).items()):
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


class StatisticsPosterior(SampledPosterior):
    """Draws from a posterior that was built from the statistics of its data alone."""

    def __init__(self, provenance: Provenance, target: Target, result: Draws, statistics: KeptStatistics):
        draws, nothing = constrain_rows(target.prior, result.positions), np.empty((0, len(statistics.arrays["offset"])))
        super().__init__(provenance, target.prior, draws, nothing, beta=float(target.beta), result=result)
        self.target, self.statistics = target, statistics

    @property
    def n(self) -> int:
        """Number of observations."""
        return self.statistics.n

    @property
    def weights(self) -> Float[np.ndarray, " n"]:
        """Not available without the observations: raises `InputError`."""
        raise InputError("Weights are not known here: the statistics of a data set do not hold its observations.")

    @property
    def warnings(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Always empty: the warnings are about the observations."""
        return ()

    @double_precision
    def log_prob(self, theta: Any) -> Float[np.ndarray, "..."]:
        """Unnormalised log density at points of shape (..., d), the same as with the observations."""
        theta = self._thetas(theta)
        return map_rows(log_density, theta.reshape(-1, self.dim), self.target).reshape(theta.shape[:-1])

    def _no_sums(self, what: str, remedy: str) -> InputError:
        del remedy
        return InputError(
            f"This posterior cannot be changed for other {what}. Build it again from the statistics, for any prior and "
            "learning rate: method.posterior_from(statistics, prior=prior, beta=beta)."
        )

    def _about_observations(self) -> str:
        return "Its observations are not stored: it was computed from sums over them."


@double_precision
def from_statistics(
    statistics: KeptStatistics,
    density: MixtureDensity,
    prior: UnconstrainedPrior,
    sampler: Sampler,
    provenance: Provenance,
    *,
    beta: float,
    seed: int,
) -> StatisticsPosterior:
    """Build the posterior of a data set from its statistics alone."""
    target = Target(prior, statistics.loss(density), jnp.asarray(beta))
    near = unconstrain_rows(prior, statistics.arrays["references"])
    return StatisticsPosterior(provenance, target, sampler.sample_near(target, near, seed=seed), statistics)
