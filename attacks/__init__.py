"""Attacks on the package, with counts: hostile model folders, CSV files as nobody should write them, kills.

`python -m attacks models --count 1000`; likewise `files` and `kills`. Each prints what it tried and what came of it,
and exits with 1 if anything did not hold. A small sample of each is part of the tests.
"""
