"""Tables of synthetic rows: nothing here was measured."""

from dataclasses import replace

import numpy as np
import pytest
from support.synthetic import a_row, synthetic_result

from nsmbayes import tasks
from nsmbayes.experiments import DataSpec, Row, catalogue, paper, tables
from nsmbayes.experiments.paper import Printed
from nsmbayes.experiments.tables import Line, disagreements, score_table


def _rows(**changed):
    """Four repeats that score as `_PRINTED`, but for what is changed."""
    scores = {"mse": 4.0, "mmd2_ref": 0.5, "converged": True, "train_s": 1.0, "infer_s": 1.0, "hits": 2} | changed
    hits = scores.pop("hits")
    return [a_row(repeat=i, covered=None if hits is None else i < hits, **scores) for i in range(4)]


def _changed(result, **fields):
    """The result with the same numbers in all of its rows."""
    return replace(result, rows=tuple(replace(row, **fields) for row in result.rows))


_PRINTED = Printed((4.0, 1.0), (0.5, 0.125), 0.5, None, 1.0)


def _line(choices="ours", reason=None, same_reference=True, **changed):
    return Line("NLE", choices, _rows(**changed), "nle", _PRINTED, same_reference, reason)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, []),
        ({"mse": 6.0, "mmd2_ref": 0.25, "hits": 3}, []),
        ({"mse": 6.01}, ["MSE"]),
        ({"mse": 1.99}, ["MSE"]),
        ({"mmd2_ref": 0.76}, ["MMD²"]),
        ({"hits": 0}, ["coverage"]),
        ({"mse": 7.0, "mmd2_ref": 0.0, "hits": 4}, ["MSE", "MMD²", "coverage"]),
        ({"mmd2_ref": None, "hits": None}, []),
    ],
)
def test_disagreement_with_the_paper_is_known(changed, found):
    assert disagreements(_line(**changed)) == found


def test_mmd_to_another_reference_is_not_compared():
    assert disagreements(_line(mmd2_ref=0.9, same_reference=False)) == []


def test_what_the_paper_does_not_print_is_not_compared():
    assert disagreements(replace(_line(mse=99.0), printed=Printed(infer_s=1.0))) == []


@pytest.mark.parametrize(("mse", "reason"), [(9.0, ""), (4.0, "no reason to give one")])
def test_every_disagreement_has_a_reason_and_nothing_else_has(mse, reason):
    with pytest.raises(ValueError, match="disagrees in"):
        score_table([_line(reason=reason, mse=mse)])


def test_a_disagreement_is_shown_and_numbered():
    text = score_table([_line(reason=""), _line("others", "planted", mse=9.0)])
    *rows, _, note = text.splitlines()
    assert [row.rstrip(" |")[-1:] == "1" for row in rows if "others" in row] == [True]
    assert note == "1. NLE, others (MSE): planted."


def test_without_reasons_a_disagreement_is_only_marked():
    assert score_table([_line(mse=9.0)]).endswith("\n1. NLE, ours (MSE).")


def _cells(text):
    """The rows of a table as dicts, by its head."""
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "|" in line)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_scores_stand_beside_the_papers(tmp_path):
    result = synthetic_result(catalogue.GNK, tmp_path, repeats=3)
    (text,) = tables.score_tables([result]).values()
    rows = _cells(text)
    conj, printed = (row for row in rows if row["method"] == "NSM-Bayes-conj")
    mine = result.of("nsm-bayes-conj")
    mse = [row.mse for row in mine]
    assert conj["MSE"] == f"{np.mean(mse):.2f} ({np.std(mse, ddof=1):.2f})"
    assert conj["infer, s"] == f"{np.mean([row.infer_s for row in mine[1:]]):.1f}"  # the first holds compilation
    assert conj["with compilation, s"] == f"{mine[0].infer_s:.1f}"
    assert (conj["amortised"], conj["guarantee"], conj["choices"]) == ("fully", "yes", "ours")
    assert (printed["MSE"], printed["coverage"], printed["infer, s"]) == ("6.10 (2.90)", "100%", "5.1")
    assert rows[-1]["method"] == "oracle"
    assert rows[-1]["MSE"] == "0.31 (0.01)"  # once per data set, not once per method
    assert len(rows) == 2 * len(catalogue.GNK.methods) + 1


def test_presets_stand_under_one_another(tmp_path):
    results = [synthetic_result(replace(catalogue.GNK, preset=preset), tmp_path) for preset in ("default", "paper")]
    (text,) = tables.score_tables(results).values()
    assert [row["choices"] for row in _cells(text) if row["method"] == "ACE"] == [
        tables.OURS,
        tables.PAPERS_CHOICES,
        tables.THE_PAPERS,
    ]


@pytest.mark.parametrize(("preset", "shown_as"), [("paper", "50%"), ("default", None)])
def test_a_calibration_that_gave_up_is_shown(preset, shown_as, tmp_path):
    result = synthetic_result(replace(catalogue.GNK, preset=preset).only(("nsm-bayes-conj",)), tmp_path)
    smallest = paper.choices("gnk", "nsm-bayes-conj")["initial_beta"] / 100
    rows = zip(result.rows, (smallest, 2 * smallest), strict=True)
    result = replace(result, rows=tuple(replace(row, beta=beta) for row, beta in rows))
    (text,) = tables.score_tables([result]).values()
    assert _cells(text)[0].get("β at floor") == shown_as


def test_an_unexplained_disagreement_of_a_run_is_an_error(tmp_path):
    result = synthetic_result(catalogue.GNK.only(("nle",)), tmp_path)
    result = _changed(result, mse=1.0, covered=False)
    with pytest.raises(ValueError, match=r"NLE, ours: disagrees in \['MSE'\]"):
        tables.score_tables([result], {})
    (text,) = tables.score_tables([result], {("gnk", "nle", "default"): "planted"}).values()
    assert "(MSE): planted." in text
    result = _changed(result, mse=15.0)
    with pytest.raises(ValueError, match="reason is 'planted'"):
        tables.score_tables([result], {("gnk", "nle", "default"): "planted"})


def test_the_paper_is_compared_on_its_own_data_only(tmp_path):
    result = synthetic_result(replace(catalogue.GNK, data=(DataSpec(), DataSpec("none"))).only(("nle",)), tmp_path)
    found = tables.score_tables([result])
    assert set(found) == {"10% shift", "clean data"}
    assert [tables.THE_PAPERS in text for text in found.values()] == [True, False]


def test_the_ablation_shows_the_papers_once_for_each_scatter(tmp_path):
    (text,) = tables.score_tables([synthetic_result(catalogue.SIR_ABLATION, tmp_path)]).values()
    order = [(row["method"].partition(", ")[2], row["choices"] == tables.THE_PAPERS) for row in _cells(text)]
    assert order[:3] == [("mcd", False), ("mcd, one level", False), ("mcd", True)]
    assert order[3:6] == [("sample", False), ("sample, one level", False), ("sample", True)]


def test_the_papers_ablation_without_robust_moments_is_the_prior():
    prior, truth = tasks.SIR.prior, tasks.SIR.theta_true
    error = ((prior.sample((100_000,), 0) - truth) ** 2).sum(axis=1)
    printed = paper.SIR_ABLATION["nsm-bayes-conj, sample"].mse
    assert printed == (pytest.approx(error.mean(), abs=4 * error.std() / 100_000**0.5), 0.0)
    assert round(np.trace(prior.covariance) + ((prior.mean - truth) ** 2).sum(), 2) == printed[0]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, ""), (1e-4, ""), (0.034, "0.03"), (0.16, "0.2"), (4.96, "5.0"), (93, "93")]
)
def test_short_times_are_shown_and_none_is_not(seconds, text):
    cells = _cells(score_table([Line("a method", tables.OURS, _rows(infer_s=seconds, train_s=1.0))]))
    assert cells[0].get("infer, s", "") == text


def test_the_oracle_is_that_of_the_first_run(tmp_path):
    results = [synthetic_result(replace(catalogue.SIR, preset=preset), tmp_path) for preset in ("default", "paper")]
    results = [_changed(result, oracle_mse=error) for result, error in zip(results, (0.25, 0.75), strict=True)]
    (text,) = tables.score_tables(results).values()
    assert _cells(text)[-1]["method"] == "oracle"
    assert _cells(text)[-1]["MSE"].startswith("0.25")


def test_absent_fields_are_no_error(tmp_path):
    result = synthetic_result(catalogue.SIR, tmp_path)
    kept = ("method", "repeat", "seed", "contamination", "fraction", "n", "mse", "covered")
    result = replace(result, rows=tuple(Row(**{name: getattr(row, name) for name in kept}) for row in result.rows))
    (text,) = tables.score_tables([result]).values()
    assert {"MSE", "coverage"} <= _cells(text)[0].keys()
    assert not {"converged", "with compilation, s"} & _cells(text)[0].keys()
    assert tables.budget_table([result]) == tables.parameter_table(result) == ""
    assert "MSE" in tables.page(result)
    assert "oracle" not in tables.bench_table(result).split("\n", 1)[1]


def test_a_sweep_has_a_line_for_each_place(tmp_path):
    data = tuple(DataSpec(kind, n=n) for kind in ("shift", "none") for n in (10, 1000))
    result = synthetic_result(replace(catalogue.get("gnk-size"), data=data), tmp_path)
    dirty, clean = (_cells(text) for text in tables.sweep_tables(result).values())
    assert [row["observations n"] for row in dirty] == ["10", "1,000"]
    rows = [row for row in result.rows if (row.method, row.contamination, row.n) == ("nle", "none", 10)]
    mse = [row.mse for row in rows]
    assert clean[0]["NLE: MSE"] == f"{np.mean(mse):.2f} ({np.std(mse, ddof=1) / np.sqrt(2):.2f})"
    assert clean[0]["oracle's MSE"] in ("0.30", "0.31")
    assert "NSM-Bayes: sd / NLE's" in clean[0]
    assert "NSM-Bayes: sd / NLE's" not in dirty[0]


@pytest.mark.parametrize(
    ("experiment", "places", "first"),
    [
        (catalogue.get("gnk-fraction"), catalogue.FRACTIONS, "0%"),
        (catalogue.get("gnk-distance"), catalogue.DISTANCES, "1"),
        (catalogue.get("gnk-zeta"), catalogue.ZETAS, "0.5"),
        (catalogue.get("gnk-simulations"), catalogue.BUDGETS, "1,000"),
    ],
)
def test_the_axis_of_every_sweep(experiment, places, first, tmp_path):
    found = list(tables.sweep_tables(synthetic_result(experiment, tmp_path, repeats=1)).values())
    cells = _cells(found[0])
    assert next(iter(cells[0].values())) == first
    assert len({next(iter(row.values())) for row in cells}) == len(cells) == len(places)
    assert len(found) == (len(experiment.data) if experiment is catalogue.get("gnk-zeta") else 1)
    assert "(" not in cells[0]["NSM-Bayes: MSE"]  # of one repeat nobody knows the standard error


def test_the_bench(tmp_path):
    result = synthetic_result(
        replace(catalogue.BENCHES[0], data=(DataSpec(), DataSpec("near", fraction=0.3))), tmp_path
    )
    cells = _cells(tables.bench_table(result))
    assert [row["data"] for row in cells] == ["10% shift"] * 3 + ["30% near"] * 3
    rows = [row for row in result.rows if (row.method, row.contamination) == ("nsm-bayes", "near")]
    ratio = np.mean([row.mse for row in rows]) / np.mean([row.oracle_mse for row in rows])
    bias = np.mean([(row.mean[2] - result.task.theta_true[2]) / row.sd[2] for row in rows])
    assert cells[4]["MSE / oracle's"] == f"{ratio:.2f}"
    assert cells[4]["bias of g, sd"] == f"{bias:+.1f}"
    assert cells[4]["80%"] == f"{np.mean([row.covered_80 for row in rows]):.0%}"


def test_budgets_stand_beside_the_papers(tmp_path):
    cells = {row["method"]: row for row in _cells(tables.budget_table([synthetic_result(catalogue.GNK, tmp_path)]))}
    assert cells["GBI-SR"]["the paper's"] == f"{paper.ALLOWANCES['gnk']['gbi-sr'].budget:,}"
    assert cells["NLE"] == {"method": "NLE", "simulations": "100,000", "the paper's": "100,000"}


def test_what_the_paper_prints_has_a_place():
    for name, printed in paper.TABLES.items():
        assert printed.keys() <= {method.label for method in catalogue.get(name).methods}, name
