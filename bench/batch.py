"""Time to build the posteriors of many data sets together."""

from bench.setup import brief_method, contaminated
from bench.timing import Row, side_by_side

TINY = {"datasets": (10, 20), "n": 30, "repeats": 1}


def run(datasets: tuple[int, ...] = (10, 100, 1_000, 10_000), n: int = 100, repeats: int = 5) -> list[Row]:
    """`build_posteriors` at a fixed learning rate, each data set with its own location and scatter."""
    method = brief_method()
    rows = []
    for count in datasets:
        data = [contaminated(count, n, seed=seed) for seed in (1, 2)]
        name = f"posteriors of {count:,} data sets of {n} observations"
        call = lambda i, data=data: method.build_posteriors(data[i % 2], beta=0.25)  # noqa: E731
        (row,) = side_by_side({name: call}, repeats=repeats)
        row.detail.update(datasets=count, later_us_per_dataset=1e6 * row.later_s / count)
        rows.append(row)
    return rows
