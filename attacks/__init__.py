"""Attacks on the package, with counts: hostile models, CSV files as nobody should write them, kills, replaced rows.

`python -m attacks models --count 1000`; likewise `files`, `kills`, `soak` and `replacements-nsm-bayes`. Each prints and
stores what it tried and what came of it, and exits with 1 if anything did not hold. A small sample of each is part of
the tests; docs/make_attacks.py writes a page of what is stored.
"""
