"""The performance page shows every measurement that is stored, and does without those that are not."""

import json

import pytest
from support.docs_scripts import docs_script

_MACHINE = {"cpu": "some processor", "cores": 2, "packages": {"jax": "0.0"}}


@pytest.fixture
def script(tmp_path, monkeypatch):
    """The script of the page, with temporary folders."""
    return docs_script("make_performance", tmp_path, monkeypatch)


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
    _store(script.RESULTS, "devices", measured | {"effective_draws_per_s": 123.0}, measured | {"gflops": 500.0})
    _store(script.RESULTS, "memory", {"peak_gib": 2.345})
    text = script.page()
    assert "| row 0 | 9.0 s | 2.0 s |  | -2.500 |  |" in text
    assert "| row 1 | 9.0 s | 20.0 s | 5 |  | 44 |" in text
    assert "gpu 2,000 and 1,000" in text
    assert "| row 0 | 2.0 s | 123 |  | 4.0 s |" in text
    assert "| row 1 | 20.0 s |  | 25% | 4.0 s |" in text
    assert "| row 0 | 2.35 GiB |" in text or "| row 0 | 2.34 GiB |" in text
