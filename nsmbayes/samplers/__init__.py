"""Draws from a density known up to a constant: thin layers over BlackJAX, and an independence sampler of our own."""

from nsmbayes.samplers.chains import ConvergenceError, Draws, require_converged
from nsmbayes.samplers.independence import sample_independence
from nsmbayes.samplers.nuts import sample_nuts
from nsmbayes.samplers.slice import sample_slice

__all__ = [
    "ConvergenceError",
    "Draws",
    "require_converged",
    "sample_independence",
    "sample_nuts",
    "sample_slice",
]
