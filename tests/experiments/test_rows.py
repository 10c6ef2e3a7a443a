"""Rows, traces and results in JSON: what is written can be read, by later versions as well."""

import json
from pathlib import Path

import pytest
from support.synthetic import a_row, synthetic_result

import nsmbayes as nsm
from nsmbayes.experiments import ExperimentResult, MethodSpec, Row, Trace, catalogue
from nsmbayes.experiments.rows import column, display_name, mean

STORED = sorted((Path(__file__).parents[2] / "results").glob("*.json"))
# The fields of a row on the command line's `--json`, in their order.
FIELDS = (
    "method repeat seed contamination fraction distance n simulations mse mmd2_ref mmd2_oracle covered covered_80 "
    "covered_50 converged train_s infer_s compiled oracle_mse reference_mse beta mean sd"
)


def _as_read(document):
    return json.loads(json.dumps(document))


def test_a_row_has_the_fields_of_the_command_line():
    assert " ".join(a_row().as_json()) == FIELDS


def test_rows_and_traces_survive_json():
    row = a_row(distance=2.0, covered=True, mean=(1.0, 2.0), sd=(0.5, 0.25))
    trace = Trace(method="nle", data=1, betas=(0.1, 1.0), coverages=(1.0, 0.9))
    assert Row.from_json(_as_read(row.as_json())) == row
    assert Trace.from_json(_as_read(trace.as_json())) == trace


def test_unknown_and_missing_fields_are_refused():
    with pytest.raises(nsm.InputError, match="no field 'colour'"):
        Row.from_json(a_row().as_json() | {"colour": "red"})
    with pytest.raises(nsm.InputError, match="lacks the field 'seed'"):
        Row.from_json({"method": "nle", "repeat": 0})
    with pytest.raises(nsm.InputError, match="no field 'steps'"):
        Trace.from_json({"method": "nle", "data": 0, "betas": [], "coverages": [], "steps": 3})


def test_a_result_is_written_as_its_rows_and_settings(tmp_path):
    result = synthetic_result(catalogue.GNK, tmp_path)
    document = _as_read(result.as_json())
    assert list(document) == [
        *("experiment", "task", "preset", "simulations", "share", "draws", "data", "methods", "machine", "rows")
    ]
    again = ExperimentResult.from_json(catalogue.GNK, document)
    assert again.rows == result.rows
    assert again.experiment == result.experiment
    with pytest.raises(nsm.InputError, match="unknown field 'weather'"):
        ExperimentResult.from_json(catalogue.GNK, document | {"weather": "fine"})


@pytest.mark.parametrize("path", STORED, ids=[path.stem for path in STORED])
def test_stored_results_can_be_read(path):
    document = json.loads(path.read_text())
    result = ExperimentResult.from_json(catalogue.get(document["experiment"]), document)
    assert f"{result.experiment.name}-{result.preset}" == path.stem
    assert len(result.rows) == len(document["rows"])
    for row, stored in zip(result.rows, document["rows"], strict=True):
        written = _as_read(row.as_json())
        assert {name: written[name] for name in stored} == stored
        assert all(value is None for name, value in written.items() if name not in stored)


def test_stored_results_are_there():
    assert len(STORED) > 20


def test_old_names_of_options_are_understood():
    old = {"label": "a", "method": "nsm-bayes-conj", "beta": None, "m": None}
    weight = {"kind": "plateau-imq", "radius": 2.0, "zeta": 0.5, "reach": 12.0}
    spec = MethodSpec.from_json(old | {"options": {"levels": [0.0], "weight": weight}})
    expected = {
        "noise_levels": (0.0,),
        "weight": nsm.weights.PlateauIMQ(radius=2.0, zeta=0.5, cutoff_radius=12.0),
    }
    assert spec.options == expected
    assert MethodSpec.from_json(_as_read(spec.as_json())) == spec


def test_columns_leave_out_what_is_not_said():
    rows = [a_row(covered=True), a_row(covered=False), a_row()]
    assert column(rows, "covered").tolist() == [1.0, 0.0]
    assert mean(rows, "covered") == 0.5
    assert mean(rows, "infer_s") is None
    with pytest.raises(AttributeError):
        column(rows, "colour")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"contamination": "none", "fraction": 0.0}, "clean data"),
        ({"contamination": "far", "fraction": 0.05, "distance": 16.0}, "5% far at 16"),
        ({"contamination": "shift"}, "shift"),
    ],
)
def test_data_in_words(fields, words):
    assert a_row(**fields).data_name == words


def test_labels_in_words():
    assert [display_name(label) for label in ("npl-mmd, more", "beta = 1")] == ["NPL-MMD, more", "beta = 1"]
