"""Draws from a density known up to a constant: thin layers over BlackJAX, and an independence sampler of our own."""

from nsmbayes.samplers.chains import ConvergenceError, Draws, require_converged
from nsmbayes.samplers.independence import sample_independence
from nsmbayes.samplers.nuts import sample_nuts
from nsmbayes.samplers.path import SMCPath, Weighted
from nsmbayes.samplers.slice import sample_slice
from nsmbayes.samplers.smc import sample_smc

__all__ = [
    "ConvergenceError",
    "Draws",
    "SMCPath",
    "Weighted",
    "require_converged",
    "sample_independence",
    "sample_nuts",
    "sample_slice",
    "sample_smc",
]
