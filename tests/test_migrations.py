"""Models that an older version has saved load, and compute what they did."""

import hashlib
import json
import shutil
import warnings
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes import serialisation
from nsmbayes.surrogates import Scalers


def test_the_format_is_what_old_files_say():
    """A change of the format breaks every model on disk: it needs a new number, and a new line here."""
    assert serialisation.FORMAT == 10
    assert list(serialisation.MIGRATIONS) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


_log_prob = eqx.filter_jit(lambda density, theta, x: density.log_prob(theta, x))  # one program, not one per operation
DATA = Path(__file__).parent / "data"
OLD = DATA / "models-format-1"


@pytest.mark.parametrize("name", sorted(path.name for path in OLD.iterdir() if path.is_dir()))
def test_a_model_of_format_1_loads(name, tmp_path):
    """Models that the last version with format 1 has saved, and what it computed with them."""
    expected = json.loads((OLD / "expected.json").read_text())[name]
    method = nsm.load(OLD / name)
    assert list(method.parameter_names) == expected["names"]
    again = nsm.load(method.save(tmp_path / "model"))
    for one in (method, again):
        if "mean" in expected:
            x = nsm.tasks.get("gnk").observe(40, seed=1).x
            np.testing.assert_allclose(one.build_posterior(x, beta=0.1).mean, expected["mean"], rtol=1e-9)
        else:
            with jax.enable_x64(True):
                log_prob = _log_prob(one.density, jnp.asarray(one.prior.mean + 0.1), jnp.full(one.d_x, 0.3))
            assert float(log_prob) == pytest.approx(expected["log_prob"], rel=1e-9)


@pytest.mark.parametrize("name", ["nle", "nle-ensemble"])
def test_a_model_of_format_2_with_six_columns_loads(name):
    """Its entries of the precision factors are in another order, which no shape tells."""
    method = nsm.load(DATA / "models-format-2" / name)
    expected = json.loads((DATA / "models-format-2" / f"{name}.json").read_text())["log_prob"]
    with jax.enable_x64(True):
        log_prob = _log_prob(method.density, jnp.asarray(method.prior.mean + 0.1), jnp.full(6, 0.3))
    assert float(log_prob) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("columns", "components"), [(6, 5), (2, 10)])
def test_a_model_of_format_9_has_the_components_it_was_trained_with(columns, components, tmp_path):
    """Its options may say that they are those by default, which are others now with many columns."""
    prior = nsm.GaussianPrior([0.0, 0.0], [1.0, 1.0])
    rng = np.random.default_rng(0)
    theta, x = rng.standard_normal((200, 2)), rng.standard_normal((200, columns))
    method = nsm.NLE(prior, surrogate=nsm.MDN(components=components)).append_simulations(theta, x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # so few simulations do not cover the prior
        method.adopt(method.surrogate.build(jax.random.key(0), Scalers.blank(columns, 2)))
    folder = method.save(tmp_path / "model")
    header = json.loads((folder / "model.json").read_text())
    header["format"], header["config"]["surrogate"]["components"] = 9, None
    del header["sha256"]
    header["sha256"] = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(header))
    loaded = nsm.load(folder)
    assert loaded.surrogate.components == (5 if columns == 6 else None)
    again = nsm.load(loaded.save(tmp_path / "again"))
    for one in (loaded, again):
        for found, expected in zip(jax.tree.leaves(one.density), jax.tree.leaves(method.density), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_an_old_model_that_asks_for_gigabytes_is_refused(tmp_path):
    """Before its entries are put into another order."""
    folder = shutil.copytree(DATA / "models-format-2" / "nle", tmp_path / "model")
    header = json.loads((folder / "model.json").read_text())
    header["config"]["surrogate"]["components"] = 2**40
    del header["sha256"]
    header["sha256"] = hashlib.sha256(json.dumps(header).encode()).hexdigest()
    (folder / "model.json").write_text(json.dumps(header))
    with pytest.raises(nsm.InputError, match="damaged"):
        nsm.load(folder)


def test_options_of_format_1_are_kept():
    options = nsm.load(OLD / "nsm-bayes").config()
    assert options["surrogate"] == nsm.MDN(components=2, hidden=(6,), ensemble=1, factor="covariance")
    assert options["weight"] == nsm.weights.PlateauIMQ(radius=2.0, zeta=1.0, cutoff_radius=12.0)
    assert options["sampler"] == nsm.samplers.AdaptiveSampler(draws=50)
    assert options["calibration"] == nsm.calibration.PathCalibration()
    assert options["grid_steps"] == (0.0,)
    assert options["excess"] is None
    paper = nsm.load(OLD / "nsm-bayes-paper")
    assert paper.surrogate == nsm.MAF(hidden=6, squash=False, allow_one_dimension=True)
    assert paper.calibration == nsm.calibration.ReweightingCalibration()
    assert nsm.load(OLD / "noisy-flow").surrogate == nsm.MAF(hidden=6, base_hidden=(6,))
    assert nsm.load(OLD / "conj").calibration == nsm.calibration.RootCalibration(largest=0.75)


def test_trends_of_format_9_keep_their_bound():
    """Without a trend nothing is added."""
    arrays = {"model.trend.slope": np.ones((6, 2), np.float32)}
    header, found = serialisation.MIGRATIONS[9]({"format": 9}, arrays)
    assert header["format"] == 10
    assert found["model.trend.bound"] == 10
    assert found["model.trend.bound"].dtype == np.float32
    assert serialisation.MIGRATIONS[9]({"format": 9}, {})[1] == {}
