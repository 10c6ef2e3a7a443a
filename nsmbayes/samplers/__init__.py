"""Draws from a density known up to a constant: thin layers over BlackJAX."""

from nsmbayes.samplers.nuts import ConvergenceError, Draws, require_converged, sample_nuts

__all__ = ["ConvergenceError", "Draws", "require_converged", "sample_nuts"]
