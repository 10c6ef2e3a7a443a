"""Columns by name: data in another order are brought into that of the simulations, others are refused."""

import warnings

import numpy as np
import pandas as pd
import pytest

import nsmbayes as nsm
from nsmbayes.errors import InputError

NAMES = ("dose", "weight", "age")
X = np.random.default_rng(3).standard_normal((40, 3)) @ np.diag([1.0, 3.0, 0.2]) + [0.0, 5.0, 1.0]
FRAME = pd.DataFrame(X, columns=list(NAMES))


@pytest.fixture(scope="module")
def named(random_method):
    return random_method(3, 2, scatter="mad", x_names=NAMES)


def test_permuted_columns_give_the_same_posterior(named, tmp_path):
    """Also after saving: the names are part of the model."""
    expected = named.build_posterior(FRAME, beta=0.3)
    loaded = nsm.load(named.save(tmp_path / "model"))
    assert loaded.x_names == NAMES
    for method in (named, loaded):
        found = method.build_posterior(FRAME[list(reversed(NAMES))], beta=0.3)
        assert np.array_equal(found.x, X)
        assert np.array_equal(found.mean, expected.mean)
    assert nsm.load(expected.save(tmp_path / "posterior")).x_names == NAMES


def test_more_data_and_other_places_are_brought_into_order_too(named):
    posterior, turned = named.build_posterior(FRAME, beta=0.3), FRAME[["age", "dose", "weight"]]
    assert np.array_equal(posterior.update(turned).mean, posterior.update(FRAME).mean)
    assert np.array_equal(posterior.weight_at(turned), posterior.weights)
    pif_kl = nsm.robustness.pif_kl
    assert np.array_equal(pif_kl(posterior, turned[:3]).kl, pif_kl(posterior, X[:3]).kl)
    batch = named.build_posteriors([FRAME, turned], beta=0.3)
    np.testing.assert_array_equal(batch.mean[0], batch.mean[1])


@pytest.mark.parametrize(
    "frame",
    [
        FRAME.rename(columns={"dose": "time"}),
        FRAME.assign(patient=0.0),
        FRAME[["dose", "age"]],
        pd.DataFrame(X, columns=["dose", "dose", "age"]),
        FRAME.rename(columns={"dose": 7}),
    ],
    ids=["another name", "one more", "one less", "twice", "a number"],
)
def test_other_names_are_refused(named, frame):
    with pytest.raises(InputError, match=r"`x` has the columns .*dose, weight, age.*np.asarray\(x\)"):
        named.build_posterior(frame, beta=0.3)


@pytest.mark.parametrize("unnamed", [X, pd.DataFrame(X)], ids=["array", "frame without names"])
def test_unnamed_columns_are_accepted_with_a_note(named, unnamed):
    with pytest.warns(UserWarning, match="`x` has no column names: its columns are taken to be dose, weight, age"):
        posterior = named.build_posterior(unnamed, beta=0.3)
    assert np.array_equal(posterior.x, X)
    with pytest.warns(UserWarning, match="`x_new` has no column names"):
        posterior.update(X[:3])
    with pytest.warns(UserWarning, match="`x` has no column names"):
        named.build_posteriors(X[None], beta=0.3)
    posterior.summary(), posterior.weight_at(X), posterior.outliers()  # what the package asks itself is not noted


def test_one_column_has_one_order(random_method):
    method = random_method(1, 2, x_names=("dose",))
    method.build_posterior(X[:, :1], beta=0.3)
    with pytest.raises(InputError, match="weight, but those of the simulations are dose"):
        method.build_posterior(FRAME[["weight"]], beta=0.3)


def test_simulations_bring_their_names():
    prior = nsm.GaussianPrior([0.0, 0.0], [1.0, 1.0])
    method = nsm.NLE(prior, parameter_names=("a", "b"))
    theta = pd.DataFrame(X[:, :2], columns=["b", "a"])
    method.append_simulations(theta, FRAME).append_simulations(theta, FRAME[["weight", "age", "dose"]])
    assert method.x_names == NAMES
    simulated = method._all_simulations()
    assert np.array_equal(simulated[0], np.tile(X[:, [1, 0]], (2, 1)))
    assert np.array_equal(simulated[1], np.tile(X, (2, 1)))
    with pytest.raises(InputError, match="`theta` has the columns c, a"):
        method.append_simulations(theta.rename(columns={"b": "c"}), FRAME)
    with pytest.warns(UserWarning, match="no column names"):
        method.append_simulations(theta, X)
    late = nsm.NLE(prior).append_simulations(X[:, :2], X)
    with pytest.warns(UserWarning, match="simulations before` has no column names"):
        late.append_simulations(X[:, :2], FRAME)
    assert late.x_names == NAMES


def test_names_that_cannot_be():
    prior = nsm.GaussianPrior([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(InputError, match="`x_names` must be 2 different strings"):
        nsm.NLE(prior, x_names=("a", "a"))
    with pytest.raises(InputError, match="`x` must have 2 columns"):
        nsm.NLE(prior, x_names=("a", "b")).append_simulations(X[:, :2], X)
    with pytest.raises(InputError, match="no valid text"):
        nsm.NLE(prior, x_names=("a", "\ud800"))


def test_an_adopted_network_keeps_its_columns(named, random_method):
    fresh = nsm.NSMBayesConj(named.prior, hidden=16, noise_levels=(0.0,))
    assert fresh.adopt(named).x_names == NAMES
    with pytest.raises(InputError, match="`other` was trained on the columns dose, weight, age"):
        nsm.NSMBayesConj(named.prior, hidden=16, noise_levels=(0.0,), x_names=("a", "b", "c")).adopt(named)


def test_a_model_without_names_takes_any(random_method):
    method = random_method(3, 2, scatter="mad")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(method.build_posterior(FRAME, beta=0.3).x, X)


def test_a_frame_of_parameters_names_them_unless_they_have_names():
    prior = nsm.GaussianPrior([0.0, 0.0], [1.0, 1.0])
    theta = prior.sample(5, seed=0)
    frame = pd.DataFrame(theta, columns=["a", "b"])
    method = nsm.NLE(prior).append_simulations(frame, theta)
    assert method.parameter_names == ("a", "b")
    method.append_simulations(frame[["b", "a"]], theta)
    np.testing.assert_array_equal(method._all_simulations()[0], np.concatenate([theta, theta]))
    with pytest.raises(nsm.InputError, match="`theta` has the columns"):
        method.append_simulations(frame.rename(columns={"b": "c"}), theta)
    assert nsm.NLE(prior).append_simulations(pd.DataFrame(theta), theta).parameter_names == ("theta_1", "theta_2")
