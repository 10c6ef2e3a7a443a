"""Experiments as data."""

import json

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.experiments import catalogue
from nsmbayes.experiments.description import Data, Entry, Experiment

TASK = nsm.tasks.get("gnk")


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_experiment_is_data(name):
    experiment = catalogue.get(name)
    assert json.loads(json.dumps(experiment.as_json()))["experiment"] == name
    assert [entry.label for entry in experiment.only(("nle", "ace")).entries] == ["nle", "ace"]


@pytest.mark.parametrize("data", [data for e in catalogue.EXPERIMENTS.values() if e.task == "gnk" for data in e.data])
def test_data_can_be_observed(data):
    observed = data.observe(TASK, seed=3)
    assert observed.x.shape == observed.clean.shape == (data.n, 1)
    assert (observed.x[~observed.is_outlier] == observed.clean[~observed.is_outlier]).all()
    if data.fraction is not None:
        assert observed.is_outlier.sum() == round(data.fraction * data.n)


def test_clean_observations_depend_on_n_and_seed_only():
    first = Data("none").observe(TASK, seed=4)
    for data in (Data(), Data("far"), Data("near", fraction=0.3, distance=2.0)):
        np.testing.assert_array_equal(data.observe(TASK, seed=4).clean, first.clean)


def test_groups_hold_every_seed_once():
    experiment = Experiment("one", "", "gnk", (Entry("nle"),), repeats=7, share=3)
    assert [list(group) for group in experiment.groups(10)] == [[10, 11, 12], [13, 14, 15], [16]]


def test_settings_tell_experiments_apart():
    one = Experiment("one", "", "gnk", (Entry("nsm-bayes", options={"weight": nsm.IMQ(zeta=1.0)}),))
    other = Experiment("one", "", "gnk", (Entry("nsm-bayes", options={"weight": nsm.IMQ(zeta=2.0)}),))
    assert json.dumps(one.as_json()) != json.dumps(other.as_json())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"task": "nope"}, "no task 'nope'"),
        ({"preset": "best"}, "`preset`"),
        ({"entries": ()}, "`methods`"),
        ({"entries": (Entry("nle"), Entry("nle"))}, "`methods`"),
        ({"m": 0}, "`m`"),
        ({"repeats": -1}, "`repeats`"),
        ({"share": 0}, "`share`"),
        ({"data": (Data("nope"),)}, "`contamination`"),
        ({"data": (Data(n=0),)}, "`n`"),
    ],
)
def test_bad_experiments_are_refused(change, complaint):
    with pytest.raises(nsm.InputError, match=complaint):
        Experiment(**({"name": "one", "title": "", "task": "gnk", "entries": (Entry("nle"),)} | change))


def test_bad_parts_are_refused():
    with pytest.raises(nsm.InputError, match="`methods`"):
        Entry("nope")
    with pytest.raises(nsm.InputError, match="`distance`"):
        Data("shift", distance=3.0).observe(TASK, seed=0)
    with pytest.raises(nsm.InputError, match="no experiment 'nope'"):
        catalogue.get("nope")
