import numpy as np
import pytest
from scipy import stats

from nsmbayes import tasks
from nsmbayes.errors import InputError
from nsmbayes.experiments import catalogue
from nsmbayes.experiments.outliers import KINDS, place_outliers
from nsmbayes.scatter import fit_location_scatter

OWN = {"far": 30.0, "near": 4.0, "both-sided": 8.0}
CLEAN = {name: tasks.get(name).observe(60, seed=1, contamination="none").x for name in ("gnk", "pk")}


def _whitened(clean, vectors):
    return np.linalg.solve(np.asarray(fit_location_scatter(clean).factor), vectors.T).T


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize("distance", [None, 2.5])
def test_rows_move_by_their_distance_along_one_line(name, kind, distance):
    clean = CLEAN[name]
    x, before, is_outlier = place_outliers(clean, kind, fraction=0.2, distance=distance, seed=3)
    assert np.array_equal(before, clean)
    assert np.array_equal(x[~is_outlier], clean[~is_outlier])
    assert is_outlier.sum() == 12
    moves = _whitened(clean, (x - clean)[is_outlier])
    assert np.allclose(np.linalg.norm(moves, axis=1), distance or OWN[kind])
    sides = np.sign(moves @ moves[0])
    assert np.allclose(moves, sides[:, None] * moves[0])
    assert len(set(sides)) == (2 if kind == "both-sided" else 1)


@pytest.mark.parametrize("name", CLEAN)
def test_a_cluster_is_tight_and_away_from_the_bulk(name):
    clean = CLEAN[name]
    x, _, is_outlier = place_outliers(clean, "clustered", fraction=0.4, seed=3)
    y = _whitened(clean, x[is_outlier] - np.asarray(fit_location_scatter(clean).location))
    n, d = y.shape
    # The mean of the cluster is off by chi(d) 0.1 / sqrt(n), its squared spread is chi^2: one seed in 10,000 fails.
    assert abs(np.linalg.norm(y.mean(axis=0)) - 8) < 0.1 / np.sqrt(n) * stats.chi(d).ppf(0.99995)
    spread = ((y - y.mean(axis=0)) ** 2).sum() / 0.1**2
    low, high = stats.chi2((n - 1) * d).ppf([0.00005, 0.99995])
    assert low < spread < high


@pytest.mark.parametrize("name", CLEAN)
def test_rounded_rows_lie_on_a_grid_of_two_scales(name):
    clean = CLEAN[name]
    x, _, is_outlier = place_outliers(clean, "rounded", fraction=0.2, seed=3)
    centre = fit_location_scatter(clean)
    step = 2 * np.sqrt(np.diagonal(np.asarray(centre.scatter)))
    steps = (x - np.asarray(centre.location)) / step
    off = np.abs(steps - np.rint(steps))
    assert off[is_outlier].max() < 1e-9
    assert off[~is_outlier].max() > 0.1
    assert (np.abs(x - clean)[is_outlier] <= 0.5000001 * step).all()


def test_the_experiments_have_every_kind():
    for name in ("gnk", "gaussian", "pk", "sir", "radio"):
        assert {data.contamination for data in catalogue.get(f"outliers-{name}").data} >= set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_outliers_of_a_smaller_fraction_are_among_those_of_a_larger(kind):
    small, large = (place_outliers(CLEAN["pk"], kind, fraction=fraction, seed=5) for fraction in (0.1, 0.3))
    assert (large.is_outlier >= small.is_outlier).all()
    assert np.array_equal(small.x[small.is_outlier], large.x[small.is_outlier])
    other = place_outliers(CLEAN["pk"], kind, fraction=0.3, seed=6)
    assert not np.array_equal(other.is_outlier, large.is_outlier)
    none = place_outliers(CLEAN["pk"], kind, fraction=0.0, seed=5)
    assert np.array_equal(none.x, CLEAN["pk"])


def test_directions_are_uniform_on_the_sphere_of_whitened_coordinates():
    # With columns in very different units. The squared length of the mean of 200 independent unit vectors, times 200 d,
    # is nearly chi^2 with d degrees of freedom: beyond its 0.9999 quantile for one choice of seeds in 10,000.
    rng = np.random.default_rng(0)
    clean = rng.standard_normal((40, 2)) * [1e-3, 1e3]
    moves = [place_outliers(clean, "near", fraction=0.1, seed=seed) for seed in range(200)]
    units = _whitened(clean, np.stack([(m.x - m.clean)[m.is_outlier][0] for m in moves])) / 4

    def length(units):
        return len(units) * 2 * (units.mean(axis=0) ** 2).sum()

    assert length(units) < stats.chi2(2).ppf(0.9999)
    assert length(np.abs(units)) > stats.chi2(2).ppf(0.9999)
    # Likewise the share of directions that are nearer to the first axis than to the second.
    nearer = (np.abs(units[:, 0]) > np.abs(units[:, 1])).sum()
    assert stats.binomtest(int(nearer), 200).pvalue > 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "everywhere"}, "`kind` must be one of .*'far'"),
        ({"fraction": 1.0}, "`fraction` must lie in"),
        ({"distance": 0.0}, "`distance` must be positive"),
        ({"distance": float("nan")}, "`distance`"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"clean": np.full((20, 2), np.nan)}, "`clean` has 20 rows with NaN"),
        ({"clean": np.ones((20, 2))}, "constant column"),
    ],
)
def test_bad_input(arguments, message):
    arguments = {"clean": CLEAN["gnk"], "kind": "far", "fraction": 0.1, "seed": 0} | arguments
    with pytest.raises(InputError, match=message):
        place_outliers(arguments.pop("clean"), arguments.pop("kind"), **arguments)
