"""The performance page shows every measurement that is stored, and does without those that are not."""

import json

import pytest
from support.docs_scripts import ROOT, docs_script

_MACHINE = {"cpu": "some processor", "cores": 2, "packages": {"jax": "0.0"}}


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script of the page, with temporary folders."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = docs_script("make_performance", tmp_path, monkeypatch)
    monkeypatch.setattr(module, "STUDY", tmp_path / "study.json")
    return module


def _store(folder, name, *details):
    rows = [
        {"what": d.pop("what", f"row {i}"), "first_s": 9.0, "later_s": 2.0 * 10**i, "later_cpu_s": None, "detail": d}
        for i, d in enumerate(details)
    ]
    document = {"machine": _MACHINE, "load_before": [0.5, 0, 0], "rows": rows}
    (folder / f"{name}.json").write_text(json.dumps(document))


def test_without_measurements_there_are_no_sections(script):
    assert "\n## " not in script.page()


def test_every_growth_has_a_figure_a_table_and_its_exponent(script):
    sizes = {"parameters": "parameters", "budget": "simulations", "batch": "datasets"}
    for name, size in sizes.items():
        _store(script.RESULTS, name, *({size: 10**i, "compile_s": 1.0 + i} for i in range(1, 4)))
    _store(script.RESULTS, "observations", *({"what": f"n = {10**i:,}", "compile_s": 1.0 + i} for i in range(1, 4)))
    training = [{"columns": d, "factor": "precision", "us_per_simulation": float(d**2)} for d in (2, 4, 8)]
    _store(script.RESULTS, "columns", *training)
    script.draw()
    text = script.page()
    assert {path.stem for path in script.PICTURES.iterdir()} == {growth.name for growth in script.GROWTHS}
    assert text.count("NSM-Bayes 1.0.") == 3  # ten times the cost at ten times the size
    assert "factors of precisions 2.0." in text
    assert text.count("Compilation takes 2.0 to 4.0 s.") == len(sizes) + 1
    assert "| 8 | 64 |" in text
    assert "| 1,000 | 200 |" in text


def test_one_size_is_no_growth(script):
    _store(script.RESULTS, "batch", {"datasets": 1000})
    assert "\n## " not in script.page()


def test_sbi_devices_and_memory_are_tables(script):
    _store(
        script.RESULTS,
        "sbi",
        {"held_out_log_prob": -2.5},
        {"smallest_ess": 100.0, "times_less_processor_time_than_sbi": 44.2},
    )
    rates = {"float32": 2000.0, "float64": 1000.0}
    measured = {"device": "gpu", "matrix_gflops": rates, "compile_s": 4.0}
    _store(
        script.RESULTS,
        "devices",
        measured | {"what": "gpu: a", "effective_draws_per_s": 123.0},
        measured | {"what": "gpu: b", "gflops": 500.0},
    )
    _store(script.RESULTS, "memory", {"peak_gib": 2.345})
    text = script.page()
    assert "| row 0 | 9.0 s | 2.0 s |  | -2.500 |  |" in text
    assert "| row 1 | 9.0 s | 20.0 s | 5 |  | 44 |" in text
    assert "gpu 2,000 and 1,000" in text
    assert "| gpu: a | 2.0 s | 123 |  | 4.0 s |" in text
    assert "| gpu: b | 20.0 s |  | 25% | 4.0 s |" in text
    assert "| row 0 | 2.35 GiB |" in text or "| row 0 | 2.34 GiB |" in text


def test_held_out_densities_are_a_table(script):
    sbi = {"held_out_log_prob": 1.0, "more_than_sbi": 0.0, "standard_error": 0.0, "epochs": 7}
    ours = {"held_out_log_prob": 1.5, "more_than_sbi": 0.5, "standard_error": 0.01, "epochs": 9}
    _store(script.RESULTS, "held-out", sbi, ours)
    path = script.RESULTS / "held-out.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sizes": {"simulations": 50_000, "held_out": 5_000}}))
    text = script.page()
    assert "| row 0 | 1.000 |  | 7 | 2.0 s |" in text
    assert "| row 1 | 1.500 | +0.500 ± 0.010 | 9 | 20.0 s |" in text


def test_the_study_of_size_is_a_table_for_every_part(script):
    common = {"set": 0, "cpu": "some processor", "cores": 2, "device": "cpu", "jax": "0.0", "seconds": 2.0}
    common |= {"covered": True, "good_weight": 0.98, "good_below_tenth": 0.0, "mse": 3.0}
    ratios = {"sd_ratio": 1.0, "smallest_ratio": 0.9, "largest_ratio": 1.2}
    off = {"mean_off": 0.1, "worst_mean_off": 0.31} | ratios
    rows = [
        {"part": "gaussian", "size": 8} | common | off,
        {"part": "gaussian", "size": 8} | common | off | {"mean_off": 0.2, "covered": False, "device": "big one"},
        {"part": "decay", "size": 6} | common | {"nle_mse": 2.0, "nle_covered": True},
        {"part": "traces", "size": 60} | common | {"first": True},
        {"part": "traces", "size": 60} | common | {"first": False, "seconds": 1.0},
        {"part": "sir", "size": 1000} | common,
        {"part": "full", "size": 1000} | common | off,
    ]
    script.STUDY.write_text(json.dumps({"simulations": 50_000, "rows": rows}))
    text = script.page()
    assert "| 8 | 2 | 0.15 (0.20) | 0.31 | 1.00 (0.90 to 1.20) | 50 % |" in text
    assert "(big one, JAX 0.0; some processor, 2 cores, JAX 0.0.)" in text
    assert "| 6 | 1 | 0.980 | 0.0 % | 1.50 | 100 % | 100 % |" in text
    assert "| 60 | 2.0 s | 1.0 s |" in text
    assert "| 1,000 | 2.0 s |" in text
    assert "| 1,000 | 0.310 | 0.90 to 1.20 |" in text


def test_the_page_says_where_the_accelerator_is_slower(script):
    rates = {"float32": 2.0, "float64": 1.0}
    order = (
        "gpu: training",
        "cpu: training",
        "cpu: posterior",
        "gpu: posterior",
    )  # each takes ten times the one before
    rows = [{"what": w, "device": w[:3], "matrix_gflops": rates, "compile_s": 1.0} for w in order]
    _store(script.RESULTS, "devices", *rows)
    text = script.page()
    assert "faster in 1 of 2 measurements by 10.0 to 10 times. It is slower in: posterior (10.0 times)." in text
    _store(script.RESULTS, "devices", *({"what": w, "device": "cpu"} | rows[0] for w in order[1:3]))
    assert "accelerator" not in script.page()
