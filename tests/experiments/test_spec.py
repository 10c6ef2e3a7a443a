"""Experiments as data."""

import json

import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.experiments import DataSpec, Experiment, MethodSpec, catalogue

TASK = nsm.tasks.get("gnk")


@pytest.mark.parametrize("name", catalogue.EXPERIMENTS)
def test_every_experiment_is_data(name):
    experiment = catalogue.get(name)
    assert json.loads(json.dumps(experiment.as_json()))["experiment"] == name
    assert [method.label for method in experiment.only(("nle", "ace")).methods] == ["nle", "ace"]


@pytest.mark.parametrize("data", [data for e in catalogue.EXPERIMENTS.values() if e.task == "gnk" for data in e.data])
def test_data_can_be_observed(data):
    observed = data.observe(TASK, seed=3)
    assert observed.x.shape == observed.clean.shape == (data.n, 1)
    assert (observed.x[~observed.is_outlier] == observed.clean[~observed.is_outlier]).all()
    if data.fraction is not None:
        assert observed.is_outlier.sum() == round(data.fraction * data.n)


def test_clean_observations_depend_on_n_and_seed_only():
    first = DataSpec("none").observe(TASK, seed=4)
    for data in (DataSpec(), DataSpec("far"), DataSpec("near", fraction=0.3, distance=2.0)):
        np.testing.assert_array_equal(data.observe(TASK, seed=4).clean, first.clean)


def test_groups_hold_every_seed_once():
    experiment = Experiment("one", "", "gnk", (MethodSpec("nle"),), repeats=7, repeats_per_network=3)
    assert [list(group) for group in experiment.groups(10)] == [[10, 11, 12], [13, 14, 15], [16]]


def test_settings_tell_experiments_apart():
    one = Experiment("one", "", "gnk", (MethodSpec("nsm-bayes", options={"weight": nsm.weights.IMQ(zeta=1.0)}),))
    other = Experiment("one", "", "gnk", (MethodSpec("nsm-bayes", options={"weight": nsm.weights.IMQ(zeta=2.0)}),))
    assert json.dumps(one.as_json()) != json.dumps(other.as_json())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"task": "nope"}, "no task 'nope'"),
        ({"preset": "best"}, "`preset`"),
        ({"methods": ()}, "`methods`"),
        ({"methods": (MethodSpec("nle"), MethodSpec("nle"))}, "`methods`"),
        ({"m": 0}, "`m`"),
        ({"repeats": -1}, "`repeats`"),
        ({"repeats_per_network": 0}, "`repeats_per_network`"),
        ({"axis": "colour"}, "`axis`"),
        ({"data": (DataSpec("nope"),)}, "`contamination`"),
        ({"data": (DataSpec(n=0),)}, "`n`"),
    ],
)
def test_bad_experiments_are_refused(change, complaint):
    with pytest.raises(nsm.InputError, match=complaint):
        Experiment(**({"name": "one", "title": "", "task": "gnk", "methods": (MethodSpec("nle"),)} | change))


def test_bad_parts_are_refused():
    with pytest.raises(nsm.InputError, match="`methods`"):
        MethodSpec("nope")
    with pytest.raises(nsm.InputError, match="`distance`"):
        DataSpec("shift", distance=3.0).observe(TASK, seed=0)
    with pytest.raises(nsm.InputError, match="no experiment 'nope'"):
        catalogue.get("nope")


@pytest.mark.parametrize(
    ("task", "preset", "exact"), [("gnk", "default", True), ("gnk", "paper", False), ("sir", "default", False)]
)
def test_which_posterior_others_are_compared_with(task, preset, exact):
    assert Experiment("one", "", task, (MethodSpec("nle"),), preset=preset).exact_reference == exact


def test_an_experiment_is_known_by_its_settings():
    for experiment in catalogue.EXPERIMENTS.values():
        settings = json.loads(json.dumps(experiment.as_json()))
        assert experiment.with_settings(settings) == experiment
