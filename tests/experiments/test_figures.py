"""Every kind of figure, drawn of synthetic repeats: nothing here was measured."""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.synthetic import synthetic_result

from nsmbayes.cli import main
from nsmbayes.experiments import DataSpec, catalogue, tables
from nsmbayes.experiments.figures import FIGURES, draw
from nsmbayes.experiments.figures.looks import axis_number, looks
from nsmbayes.plotting.style import LOOKS, STYLE
from nsmbayes.tasks import radio, sir
from nsmbayes.tasks.radio import ObservedSeries
from nsmbayes.tasks.sir import ObservedReports

# One experiment for each kind of figure, with few data.
_FEW = (DataSpec(), DataSpec("none"))
DRAWN = {
    "illustration": catalogue.GNK,
    "marginals": catalogue.GNK,
    "pairs": catalogue.RADIO,
    "traces": catalogue.GNK,
    "trajectories": catalogue.SIR,
    "series": catalogue.RADIO,
    "profile": catalogue.RADIO,
    "summaries": catalogue.GNK,
    "times": catalogue.SIR_HEAVY,
    "sweep": replace(
        catalogue.get("gnk-size"), data=tuple(DataSpec(kind, n=n) for kind in ("shift", "none") for n in (10, 30))
    ),
    "efficiency": replace(catalogue.get("gnk-size"), data=tuple(DataSpec("none", n=n) for n in (10, 30))),
    "bench": replace(catalogue.BENCHES[0], data=_FEW),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Series and epidemics made up, and few pixels."""
    rng, outlier = np.random.default_rng(0), np.arange(20) < 2
    series = rng.normal(size=(20, radio.K)) + 1j
    reported = rng.poisson(20.0, (20, sir.T))
    monkeypatch.setattr(radio, "observed_series", lambda n, *, seed, fraction: ObservedSeries(series, series, outlier))
    monkeypatch.setattr(
        sir, "observed_reports", lambda n, *, seed, fraction: ObservedReports(reported, reported, outlier)
    )
    monkeypatch.setitem(STYLE, "savefig.dpi", 40)


@pytest.fixture
def run(tmp_path):
    """A synthetic run of the experiment that a kind of figure is drawn of."""
    return lambda kind: synthetic_result(DRAWN[kind], tmp_path)


def test_what_the_catalogue_asks_for_exists():
    for experiment in catalogue.EXPERIMENTS.values():
        assert set(experiment.figures) <= FIGURES.keys(), experiment.name
        assert experiment.table in tables.TABLES, experiment.name
        assert (experiment.table == "sweep") == bool(experiment.axis), experiment.name
    assert set(FIGURES) == set(DRAWN) == {f for e in catalogue.EXPERIMENTS.values() for f in e.figures}


@pytest.mark.parametrize("kind", FIGURES)
def test_every_kind_is_drawn_as_pixels_and_as_lines(kind, run, tmp_path):
    subject = run(kind)
    (path,) = draw(replace(subject, experiment=replace(subject.experiment, figures=(kind,))), tmp_path / "out")
    assert sorted(file.name for file in path.parent.iterdir()) == [f"{kind}.png", f"{kind}.svg"]
    assert (path.parent / f"{kind}.png").stat().st_size > 2_000


def _curves(axis):
    return {line.get_label(): line.get_data() for line in axis.lines}


def test_marginals_are_those_of_the_draws(run):
    subject = run("marginals")
    arrays = subject.arrays(100)
    for j, axis in enumerate(FIGURES["marginals"](subject).axes):
        curves = _curves(axis)
        assert set(curves["truth"][0]) == {subject.task.theta_true[j]}
        for label, name in (("reference", "reference"), ("NSM-Bayes", "nsm-bayes"), ("GBI-SR", "gbi-sr")):
            grid, density = curves[label]
            draws = arrays[f"0:{name}"][:, j]
            # The grid leaves out a little of the tails, and the kernel widens the draws.
            assert np.trapezoid(density, grid) == pytest.approx(1, abs=0.02)
            assert np.trapezoid(density * grid, grid) == pytest.approx(draws.mean(), abs=0.1 * draws.std())


def test_methods_are_told_apart_without_colours():
    assert (
        len({str(look.line) for look in LOOKS.values()}) == len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    )


def test_several_lines_of_one_method_differ(tmp_path):
    styles = looks(synthetic_result(catalogue.SIR_BETA, tmp_path, repeats=1))
    assert len({look.colour for look in styles.values()}) == len({str(look.line) for look in styles.values()}) == 5
    assert styles["beta = 1"].colour.lower() == LOOKS["nsm-bayes-conj"].colour.lower()


@pytest.mark.parametrize(("preset", "panels"), [("default", 2), ("paper", 4)])
def test_traces_are_those_of_the_calibrations(preset, panels, tmp_path):
    subject = synthetic_result(replace(catalogue.GNK, preset=preset), tmp_path)
    axes = FIGURES["traces"](subject).axes
    assert len(axes) == panels
    (trace, *_) = subject.repeats[0].traces
    assert trace.coverages in [tuple(line.get_ydata()) for line in axes[-2].lines]
    if preset == "paper":
        assert trace.betas in [tuple(line.get_ydata()) for line in axes[0].lines]
    else:
        assert trace.betas in [tuple(line.get_xdata()) for line in axes[0].lines]


def test_a_sweep_shows_means_over_the_repeats(run):
    subject = run("sweep")
    error, _, coverage, _ = FIGURES["sweep"](subject).axes
    for axis, key, label, method in (
        (error, "mse", "NSM-Bayes", "nsm-bayes"),
        (coverage, "covered", "NLE", "nle"),
        (error, "oracle_mse", "oracle", "nle"),
    ):
        x, y = _curves(axis)[label]
        rows = [r for r in subject.rows if r.method == method and r.contamination == "shift"]
        assert list(x) == [10, 30]
        np.testing.assert_allclose(y, [np.mean([getattr(r, key) for r in rows if r.n == n]) for n in x])


def test_efficiency_is_the_ratio_of_standard_deviations(run):
    subject = run("efficiency")
    axis = FIGURES["efficiency"](subject).axes[2]
    x, y = _curves(axis)["NSM-Bayes-conj"]
    sd = {(r.method, r.seed, r.n): r.sd[2] for r in subject.rows}
    ratios = [np.mean([sd["nsm-bayes-conj", s, n] / sd["nle", s, n] for s in (100, 101)]) for n in x]
    np.testing.assert_allclose(y, ratios)


def test_the_bench_is_in_units_of_the_oracle(run):
    subject = run("bench")
    error, coverage = FIGURES["bench"](subject).axes
    bars = dict(zip(("nle", "nsm-bayes", "nsm-bayes-conj"), error.containers, strict=True))
    for method, bar in bars.items():
        for point, kind in zip(bar[0].get_xdata(), ("shift", "none"), strict=True):
            rows = [r for r in subject.rows if (r.method, r.contamination) == (method, kind)]
            assert point == pytest.approx(np.mean([r.mse for r in rows]) / np.mean([r.oracle_mse for r in rows]))
    assert [label.get_text() for label in error.get_yticklabels()] == ["10% shift", "clean data"]
    assert len(coverage.containers) == 3


def test_times_leave_out_compilation_where_they_can(run):
    subject = run("times")
    for axis in FIGURES["times"](subject).axes:
        (x,) = axis.containers[0][0].get_xdata()
        assert x == pytest.approx(next(r.infer_s for r in subject.rows if r.method == "nle" and r.repeat == 1))


def test_summaries_are_those_of_all_repeats(run):
    subject = run("summaries")
    _, observed, clean = FIGURES["summaries"](subject).axes[0].collections
    for points, name in ((observed, "x"), (clean, "clean")):
        offsets = np.asarray(points.get_offsets())
        for offset, seed in zip(offsets, (100, 101), strict=True):
            q10, q25, q50, q75, q90 = np.percentile(subject.arrays(seed)[f"0:{name}"], [10, 25, 50, 75, 90])
            np.testing.assert_allclose(offset, [(q90 + q10 - 2 * q50) / (q90 - q10), (q90 - q10) / (q75 - q25)])


@pytest.mark.parametrize("methods", [("nle",), ("nsm-bayes",), ("ace", "gbi-sr")])
def test_what_was_not_run_is_left_out(methods, tmp_path):
    subject = synthetic_result(replace(catalogue.GNK, figures=("illustration", "traces")).only(methods), tmp_path)
    drawn = {path.stem for path in draw(subject, tmp_path / "out")}
    assert drawn == ({"illustration", "traces"} if "nsm-bayes" in methods else {"illustration"})
    labels = {text for axis in FIGURES["illustration"](subject).axes for text in _curves(axis)}
    assert ("weight w(x)" in labels) == ("nsm-bayes" in methods)
    assert ("NLE" in labels) == ("nle" in methods)


@pytest.mark.parametrize(("contamination", "fraction"), [("undercounting", 0.05), ("heavy-tailed", 0.0), ("none", 0.0)])
def test_epidemics_are_those_behind_the_observations(contamination, fraction, tmp_path, monkeypatch):
    seen, made_up = [], sir.observed_reports
    monkeypatch.setattr(sir, "observed_reports", lambda **asked: seen.append(asked) or made_up(**asked))
    experiment = replace(catalogue.SIR.only(("nle",)), data=(DataSpec(contamination, fraction=fraction or None, n=30),))
    FIGURES["trajectories"](synthetic_result(experiment, tmp_path))
    assert seen == [{"n": 30, "seed": 100, "fraction": fraction}]


def test_draws_without_spread_are_a_line(tmp_path):
    subject = synthetic_result(replace(catalogue.GNK, figures=()).only(("nle", "npl-mmd")), tmp_path)
    arrays = subject.arrays(100)
    arrays["0:npl-mmd"][:] = 1.25
    assert set(_curves(FIGURES["marginals"](subject).axes[0])["NPL-MMD"][0]) == {1.25}


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1"), (0.5, "0.5"), (1000.0, "1000"), (1e4, "$10^{4}$"), (2e-5, "$2\\cdot10^{-5}$")]
)
def test_numbers_beside_logarithmic_axes(value, text):
    assert axis_number(value) == text


def test_the_command_says_where_figures_and_tables_are(tmp_path, capsys):
    synthetic_result(catalogue.SIR_HEAVY, tmp_path)  # finished before, so that nothing is run
    file = tmp_path / "rows.json"
    command = ["reproduce", "sir-heavy", "--seed", "100", "--repeats", "2", "--resume", "--quiet"]
    assert main([*command, "--out", str(tmp_path), "--json", str(file)]) == 0
    folder, said = tmp_path / "sir-heavy-default", capsys.readouterr()
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{kind}.{ending}" for kind in catalogue.SIR_HEAVY.figures for ending in ("png", "svg")
    }
    assert str(folder / "figures") in said.out
    assert str(folder / "tables.md") in said.out
    assert "figures:" not in said.err  # no bar
    assert len(json.loads(file.read_text())["rows"]) == 2 * len(catalogue.SIR_HEAVY.methods)
