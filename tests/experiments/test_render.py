"""The summary in the terminal, and the files for readers."""

from dataclasses import replace

import numpy as np
import pytest
from support.synthetic import a_row, synthetic_result

from nsmbayes.errors import InputError
from nsmbayes.experiments import catalogue, tables
from nsmbayes.experiments.render import render, summarise


def test_the_summary_has_every_kind_of_data():
    rng = np.random.default_rng(0)
    fields = ("mse", "mmd2_ref", "covered", "train_s", "infer_s", "oracle_mse")
    rows = [
        a_row(
            method=method, contamination=kind, fraction=fraction, n=20, **{f: float(rng.uniform(1, 9)) for f in fields}
        )
        for method in ("nle", "mad")
        for kind, fraction in (("shift", 0.1), ("none", 0.0))
        for _ in range(3)
    ]
    table = summarise(rows)
    assert table.count("nle") == table.count("mad") == 2
    assert "n = 20, 10% shift" in table
    mine = [row.mse for row in rows if row.method == "mad" and row.contamination == "none"]
    assert f"{np.mean(mine):.2f} ({np.std(mine, ddof=1):.2f})" in table.split("clean data")[1]


def test_the_summary_of_rows_that_say_little():
    assert summarise([a_row()]).split()[-6:] == ["nle", "1.00", "nan%", "nan", "nan", "nan"]


def test_rendering_writes_the_tables(tmp_path):
    result = synthetic_result(replace(catalogue.SIR_HEAVY, figures=()), tmp_path)
    (page,) = render(result)
    assert page.read_text() == tables.page(result)


def test_rendering_needs_the_draws(tmp_path):
    result = replace(synthetic_result(catalogue.SIR_HEAVY, tmp_path, repeats=1), store=None)
    with pytest.raises(InputError, match="must have a store"):
        render(result)
