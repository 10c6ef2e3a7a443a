"""Bounds that certificates are made of: of networks, surrogates, weights and priors, all of them rounded outward.

`surrogates.GROWTHS` and `weights.WEIGHT_BOUNDS` are the tables of what is known. Types are looked up exactly, since a
subclass may behave differently; what is not in a table is not certified.
"""
