"""The summary in the terminal."""

import numpy as np

from nsmbayes.experiments.publish import summarise


def test_the_summary_has_every_kind_of_data():
    rng = np.random.default_rng(0)
    fields = ("mse", "mmd2_ref", "covered", "train_s", "infer_s", "oracle_mse")
    rows = [
        {"method": method, "contamination": kind, "fraction": fraction, "distance": None, "n": 20}
        | {name: float(rng.uniform(1, 9)) for name in fields}
        for method in ("nle", "mad")
        for kind, fraction in (("shift", 0.1), ("none", 0.0))
        for _ in range(3)
    ]
    table = summarise(rows)
    assert table.count("nle") == table.count("mad") == 2
    assert "n = 20, 10% shift" in table
    mine = [row["mse"] for row in rows if row["method"] == "mad" and row["contamination"] == "none"]
    assert f"{np.mean(mine):.2f} ({np.std(mine, ddof=1):.2f})" in table.split("clean data")[1]
