"""Time to build the posterior of one large data set."""

from bench.setup import brief_method, contaminated
from bench.timing import Row, side_by_side

TINY = {"n": 3_000, "repeats": 1}


def run(n: int = 1_000_000, repeats: int = 5) -> list[Row]:
    """`build_posterior` at a fixed learning rate: robust location and scatter, weights, sums, posterior."""
    method = brief_method()
    data = contaminated(2, n, seed=1)
    name = f"posterior of {n:,} observations"
    return side_by_side({name: lambda i: method.build_posterior(data[i % 2], beta=0.25)}, repeats=repeats)
