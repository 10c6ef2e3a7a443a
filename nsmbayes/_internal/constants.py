"""Constants that are used in more than one module."""

GAUSSIAN_MAD = 0.6744897501960817
"""The median absolute deviation of a standard Gaussian, its 3/4 quantile: MAD / GAUSSIAN_MAD estimates the standard
deviation of Gaussian data."""
