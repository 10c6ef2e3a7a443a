"""Measurements of how long things take, side by side in one run: `python -m bench`, or `python -m bench conj mcd`.

Each file holds one benchmark; `registry.py` lists them. Results are stored as JSON together with facts about the
machine, because a number without its machine, and without what else ran on it, cannot be compared with another.
"""

import os

os.environ["NSMBAYES_CACHE"] = "off"  # a first call is timed with its compilation
