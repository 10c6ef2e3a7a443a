"""Trained methods and posteriors on disk: a folder with `model.json` and a safetensors file. No pickle.

Options that are objects (weights, surrogates, calibrations, samplers) are frozen dataclasses with a `kind`, listed in
one registry. Folders in an older format are migrated step by step when they are read.
"""

from nsmbayes.serialisation.folders import Shapes, read_model, write_model
from nsmbayes.serialisation.migrations import FORMAT, MIGRATIONS
from nsmbayes.serialisation.networks import (
    MOST_COLUMNS,
    fill_model,
    model_arrays,
    outline_shapes,
    require_array,
)
from nsmbayes.serialisation.options import REGISTRY, check_fields, decode, encode, registered

__all__ = [
    "FORMAT",
    "MIGRATIONS",
    "REGISTRY",
    "registered",
    "encode",
    "decode",
    "check_fields",
    "read_model",
    "write_model",
    "Shapes",
    "model_arrays",
    "outline_shapes",
    "fill_model",
    "require_array",
    "MOST_COLUMNS",
]
