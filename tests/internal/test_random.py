import ast
from pathlib import Path

import jax
import numpy as np

import nsmbayes as nsm
from nsmbayes._internal.random import seed_key
from nsmbayes.scatter import fit_location_scatter

HUGE = (2**32, 2**63, 2**70)


def _key(seed):
    return tuple(np.asarray(jax.random.key_data(seed_key(seed))).tolist())


def test_seeds_of_any_size_have_keys_of_their_own():
    """Those of `jax.random.key` as long as it can tell them apart."""
    seeds = (0, 5, 2**32 - 1, *HUGE, *(seed + 5 for seed in HUGE))
    for wide in (False, True):
        with jax.enable_x64(wide):
            assert len({_key(seed) for seed in seeds}) == len(seeds)
            assert [_key(seed) for seed in seeds[:3]] == [(0, seed) for seed in seeds[:3]]


def test_a_huge_seed_is_a_seed_like_any_other():
    x = np.random.default_rng(0).standard_normal((30, 1))
    assert fit_location_scatter(x, seed=HUGE[-1]).is_robust


def test_no_module_makes_keys_of_seeds_by_itself():
    """`jax.random.key` takes numbers that are written there, and a seed only in `seed_key`."""
    package = Path(nsm.__file__).parent
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("jax.random.key", "jax.random.PRNGKey"):
                assert isinstance(node.args[0], ast.Constant) or path.name == "random.py", f"{path}: line {node.lineno}"
