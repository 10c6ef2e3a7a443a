"""Samplers for densities known up to a constant: thin layers over BlackJAX, and an independence sampler."""

from nsmbayes.samplers.chains import MAX_R_HAT, MIN_ESS, Draws, diagnose, has_converged, require_converged
from nsmbayes.samplers.compression import MANY, Compression, compress
from nsmbayes.samplers.independence import sample_independence
from nsmbayes.samplers.modes import minimise
from nsmbayes.samplers.nuts import sample_nuts
from nsmbayes.samplers.slice import sample_slice
from nsmbayes.samplers.strategy import (
    SAMPLERS,
    AdaptiveSampler,
    Near,
    NUTSSampler,
    Sampler,
    SliceSampler,
    as_sampler,
    energy,
    rough_draws,
)
from nsmbayes.samplers.summaries import Summary, summarise
from nsmbayes.samplers.target import Target, each_loss, log_density, log_prior, log_prob, total_loss
from nsmbayes.samplers.trimmed import search, trimmed_fit

__all__ = [
    "Draws",
    "MAX_R_HAT",
    "MIN_ESS",
    "has_converged",
    "require_converged",
    "diagnose",
    "Target",
    "log_prob",
    "log_density",
    "log_prior",
    "total_loss",
    "each_loss",
    "energy",
    "Near",
    "Sampler",
    "AdaptiveSampler",
    "NUTSSampler",
    "SliceSampler",
    "SAMPLERS",
    "as_sampler",
    "Compression",
    "MANY",
    "Summary",
    "summarise",
    "compress",
    "minimise",
    "sample_independence",
    "sample_nuts",
    "sample_slice",
    "trimmed_fit",
    "rough_draws",
    "search",
]
