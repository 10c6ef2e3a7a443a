"""Bounds for certificates: of networks, surrogates, weights and priors, all rounded outward.

`surrogates.GROWTHS` and `weights.WEIGHT_BOUNDS` list the known types. Types are looked up exactly, since a subclass may
behave differently; types that are not in a table are not certified.
"""
