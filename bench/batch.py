"""How long the posteriors of many data sets take together."""

from bench.setup import brief_method, contaminated
from bench.timing import Row, side_by_side

TINY = {"datasets": 20, "n": 30, "repeats": 1}


def run(datasets: int = 10_000, n: int = 100, repeats: int = 5) -> list[Row]:
    """`build_posteriors` at a fixed learning rate, each data set with a location and scatter of its own."""
    method = brief_method()
    data = [contaminated(datasets, n, seed=seed) for seed in (1, 2)]
    name = f"posteriors of {datasets:,} data sets of {n} observations"
    rows = side_by_side({name: lambda i: method.build_posteriors(data[i % 2], beta=0.25)}, repeats=repeats)
    rows[0].detail["later_us_per_dataset"] = 1e6 * rows[0].later_s / datasets
    return rows
