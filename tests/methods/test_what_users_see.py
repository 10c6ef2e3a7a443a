"""Warnings name the user's line, and whoever waits for a posterior is told so."""

import linecache

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes._internal import waiting

PRIOR = nsm.GaussianPrior(np.zeros(1), 4 * np.eye(1))
SETTINGS = nsm.TrainingSettings(max_epochs=1, batch_size=256)
OUTSIDE = np.full((10, 1), 60.0) + np.arange(10)[:, None]


def trained(kind, **options):
    theta = PRIOR.sample((1000,), seed=0)
    x = theta + np.random.default_rng(1).standard_normal((1000, 1))
    return kind(PRIOR, **options).append_simulations(theta, x).train(0, settings=SETTINGS, progress=False)


@pytest.fixture(scope="module")
def robust():
    return trained(nsm.NSMBayes)


@pytest.fixture(scope="module")
def conjugate():
    return trained(nsm.NSMBayesConj, hidden=8)


@pytest.mark.parametrize("kind", [nsm.NLE, nsm.NSMBayes, nsm.NSMBayesAmortised])
def test_the_warning_of_observations_outside_names_this_line(robust, kind):
    method = kind(PRIOR).adopt(robust)
    with pytest.warns(UserWarning, match="lie outside the range") as seen, pytest.raises(nsm.InputError, match="seed"):
        method.build_posterior(OUTSIDE, seed="none")  # refused after the warning, before anything is sampled
    assert [each.filename for each in seen] == [__file__]
    assert "method.build_posterior(OUTSIDE" in linecache.getline(__file__, seen[0].lineno)


def test_also_from_the_density_beside_a_family(conjugate):
    with pytest.warns(UserWarning, match="lie outside the range") as seen:
        conjugate.build_posterior(OUTSIDE, beta=0.5)
    assert {each.filename for each in seen} == {__file__}


def test_also_where_the_data_sets_are_many(robust):
    batch = nsm.NSMBayesAmortised(PRIOR).adopt(robust)
    with pytest.warns(UserWarning, match="lie outside the range") as seen, pytest.raises(nsm.InputError, match="seed"):
        batch.build_posteriors([OUTSIDE], seed="none", progress=False)
    assert [each.filename for each in seen] == [__file__]


@pytest.mark.parametrize("progress", [True, False])
def test_a_closed_form_that_takes_long_says_so(conjugate, monkeypatch, capsys, progress):
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    monkeypatch.setattr(waiting, "_EVERY", 0.01)
    monkeypatch.setattr(waiting, "_somebody_looks", lambda: True)
    conjugate.build_posterior(np.random.default_rng(2).standard_normal((30, 1)), progress=progress)
    said = capsys.readouterr().err
    assert ("posterior [" in said) == progress
    assert ("calibrating the learning rate [" in said) == progress
