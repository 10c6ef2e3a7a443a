"""Benchmarks: `python -m bench`, or `python -m bench conj mcd`; alternatives are timed in the same run.

Each file contains one benchmark; `registry.py` lists them. Results are stored as JSON with facts about the machine,
because times can only be compared if the machine and its load are known.
"""

import os

os.environ["NSMBAYES_CACHE"] = "off"  # a first call is timed with its compilation
