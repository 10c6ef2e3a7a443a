import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats
from support.builders import mdn
from support.exact import DEFECTS, SIMULATOR, Exact, exact_moments

import nsmbayes as nsm
from nsmbayes.calibration import region_contains, region_level
from nsmbayes.diagnostics import calibration
from nsmbayes.diagnostics.trials import simulate_trials
from nsmbayes.posteriors import Empirical


def a_map(defect=None, *, seed=0, datasets=60, n=10, method=None, **options):
    method = Exact(defect) if method is None else method
    options = {"simulator": SIMULATOR, "progress": False} | options
    return calibration(method, datasets=datasets, n=n, seed=seed, **options)


def said(found):
    return found.explain().replace("\n", " ")


def test_exact_posteriors_leave_a_band_in_at_most_five_percent_of_maps():
    """50 maps, of which 2.5 are expected to raise an alarm: more than 7 have a probability of 0.3 %."""
    alarms = [bool(a_map(seed=1000 * s, datasets=30).alarms) for s in range(50)]
    assert sum(alarms) <= 7


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_caught_every_time(defect):
    """Posteriors of the wrong sign, of half the width, or half a standard deviation off: 20 of 20 at 60 data sets."""
    assert all(a_map(defect, seed=1000 * s).alarms for s in range(20))


@pytest.mark.parametrize("defect", DEFECTS)
def test_ranks_coverage_and_tarp_each_catch_every_defect(defect):
    names = {each.name for each in a_map(defect, datasets=400).alarms}
    assert names == {"a", "b", "coverage", "TARP"}


def test_only_tarp_sees_that_a_posterior_ignores_the_data():
    assert {each.name for each in a_map("prior", seed=3, datasets=200).alarms} == {"TARP"}


def test_draws_and_closed_form_agree():
    """One by one from 400 draws, and many at once in closed form: ranks differ by what 400 draws leave open."""
    one, many = a_map(batch=False), a_map()
    a, b = one.answers["clean"], many.answers["clean"]
    for name in ("ranks", "levels"):
        assert np.abs(getattr(a, name) - getattr(b, name)).max() < 4 * np.sqrt(0.25 / 400)
    assert not one.alarms
    assert "one by one" in said(one)
    assert "many at once" in said(many)


def test_coverage_is_that_of_the_packages_regions():
    found = a_map(batch=False, levels=(0.3, 0.95))
    method, hits = Exact(), []
    for i, truth in enumerate(found.theta):
        posterior = method.build_posterior(_data(found, i), seed=i)
        hits.append([bool(posterior.contains(truth, level)) for level in (0.3, 0.95)])
    assert [row.rate for row in found.coverage] == pytest.approx(np.mean(hits, axis=0))
    for row in found.coverage:
        k = round(row.rate * found.datasets)
        interval = stats.binomtest(k, found.datasets).proportion_ci(0.95, "exact")
        assert (row.low, row.high) == pytest.approx((interval.low, interval.high))


def _data(found, i):
    return simulate_trials(Exact(), SIMULATOR, datasets=found.datasets, n=found.n, seed=0).x[i]


def test_the_level_of_a_point_is_where_regions_begin_to_contain_it():
    rng = np.random.default_rng(2)
    draws = rng.standard_normal((50, 2)) @ np.array([[1.0, 0.4], [0.0, 2.0]])
    for point in rng.standard_normal((40, 2)) * 1.5:
        at = region_level(draws, point)
        assert at == 1 or region_contains(draws, point, min(at + 1e-9, 1.0))
        assert at == 0 or not region_contains(draws, point, at - 1e-9)
    still = np.ones((10, 2))
    assert region_level(still, np.ones(2)) == 0.0
    assert region_level(still, np.zeros(2)) == 1.0
    assert Empirical(still).covers(np.ones(2), 0.5)


def test_the_seed_decides_everything():
    one, same, other = a_map(batch=False), a_map(batch=False), a_map(batch=False, seed=1)
    for a, b in zip(one.answers["clean"][:3], same.answers["clean"][:3], strict=True):
        assert np.array_equal(a, b)
    assert not np.intersect1d(one.theta, other.theta).size


def test_clean_and_contaminated_data_on_one_map():
    """A sample mean is not robust: with a tenth of the rows at 30, nothing is covered, and the clean data are."""

    def far(x, rng):
        x[rng.permutation(len(x))[: len(x) // 10]] = 30.0
        return x

    found = a_map(contamination=far)
    rate = {(row.data, row.level): row.rate for row in found.coverage}
    assert rate["clean", 0.95] > 0.85
    assert rate["contaminated", 0.95] == 0.0
    assert {each.data for each in found.alarms} == {"contaminated"}
    assert "On contaminated data, 50% regions contain the truth in 0%" in said(found)


def test_contaminations_of_a_task():
    task = nsm.tasks.get("gaussian")
    method = nsm.NSMBayesConj(task.prior, excess=None, hidden=8).append_simulations(*task.simulate(300, seed=0))
    method.train(settings=nsm.TrainingSettings(max_epochs=1), progress=False)
    options = {"simulator": task, "beta": 0.5, "datasets": 20, "n": 20, "progress": False}
    named = calibration(method, contamination="shift", fraction=0.3, **options)
    given = calibration(method, contamination=task.contaminations["shift"], fraction=0.3, **options)
    assert list(named.answers) == ["clean", "shift"]
    assert np.array_equal(named.answers["shift"].levels, given.answers["contaminated"].levels)
    assert not np.array_equal(named.answers["shift"].levels, named.answers["clean"].levels)
    assert "the task 'gaussian'" in named.explain()


def test_around_the_data_at_hand():
    """Posterior SBC: parameters of the posterior, whose own observations are added to the new ones."""
    x = np.random.default_rng(5).standard_normal((15, 2)) + 3
    mean, covariance = exact_moments(x)
    found = a_map(around=Exact(draws=4000).build_posterior(x), n=15, datasets=200)
    assert np.abs(found.theta.mean(axis=0) - mean).max() < 5 * np.sqrt(covariance[0, 0] / 200)
    assert not found.alarms
    assert "its 15 observations and the new ones together" in said(found)
    assert a_map("shifted", around=Exact().build_posterior(x), n=15, datasets=200).alarms


class WithSurrogate(Exact):
    """A method with a mixture density, whose second column is on a grid."""

    density, grid_steps = mdn(2), (0.0, 0.5)


def test_the_surrogate_judges_itself_only_with_a_loud_note():
    found = a_map(method=WithSurrogate(), simulator=None)
    assert "simulated with the method's OWN SURROGATE" in said(found)
    assert "cannot see an error of the surrogate" in said(found)
    x = simulate_trials(WithSurrogate(), None, datasets=20, n=10, seed=0).x
    assert np.array_equal(x[..., 1], 0.5 * np.rint(2 * x[..., 1]))
    assert not np.array_equal(x[..., 0], 0.5 * np.rint(2 * x[..., 0]))
    with pytest.raises(nsm.InputError, match="`simulator` must be given"):
        a_map(simulator=None)


@pytest.mark.slow
def test_every_kind_of_method_has_a_map():
    task, brief = nsm.tasks.get("gaussian"), nsm.TrainingSettings(max_epochs=1)
    simulations, options = task.simulate(500, seed=0), {"surrogate": nsm.MDN(hidden=(8,), components=2)}
    methods = [cls(task.prior, **options) for cls in (nsm.NLE, nsm.NSMBayes, nsm.NSMBayesAmortised)]
    for method in (*methods, nsm.NSMBayesConj(task.prior, hidden=8)):
        method.append_simulations(*simulations).train(settings=brief, progress=False)
        found = calibration(method, datasets=20, n=20, simulator=task, progress=False)
        assert found.answers["clean"].ranks.shape == (20, 2)
        assert ("generalised posterior" in said(found)) == (method.name != "nle")
        assert ("many at once" in said(found)) == (method.name in ("nsm-bayes-amortised", "nsm-bayes-conj"))
    sets = nsm.simulate_sets(task.prior, task, m=60, n=20, seed=0)
    npe = nsm.NPE(task.prior, draws=100).append_simulations(*sets).train(settings=brief, progress=False)
    assert len(calibration(npe, datasets=20, n=20, simulator=task, progress=False).coverage) == 3


class Fails(Exact):
    """No posterior for some data sets."""

    def build_posterior(self, x, *, seed=0):
        if np.asarray(x)[0, 0] > 0:
            raise nsm.ConvergenceError("The chains are stuck.")
        return super().build_posterior(x, seed=seed)


def test_data_sets_without_a_posterior_are_counted():
    found = a_map(method=Fails(), batch=False)
    missing = int(np.isnan(found.answers["clean"].levels).sum())
    assert 10 < missing < 50
    assert f"{missing} data sets have no posterior and are left out: The chains are stuck." in said(found)
    with pytest.raises(nsm.InputError, match=r"for 0 of 60 data sets only\. The chains are stuck"):
        a_map(method=Fails(), batch=False, contamination=lambda x, rng: np.abs(x) + 1.0)


def test_what_it_shows():
    found = a_map("half width", datasets=100, contamination=lambda x, rng: x)
    fig = found.plot()
    assert isinstance(fig, Figure)
    assert [axis.get_title() for axis in fig.axes] == ["coverage", "rank of a", "rank of b", "TARP"]
    table = found.table().splitlines()
    assert len(table) == 1 + 2 * 3 + 1 + 2 * 4
    assert "too rarely" in table[3]
    assert "outside its band" in table[8]
    assert "they are too narrow, or off" in said(found)
    frame = found.to_pandas()
    assert len(frame) == 2 * 3 + 2 * 4
    assert frame["value"].iloc[0] == found.coverage[0].rate


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"datasets": 19}, "`datasets` must be at least 20"),
        ({"n": 0}, "`n` must be at least 1"),
        ({"beta": 0.0}, "`beta` must be positive"),
        ({"simulator": "gaussian"}, "`simulator` must be"),
        ({"contamination": "shift"}, "not a task"),
        ({"contamination": 0.1}, "must be a function"),
        ({"contamination": lambda x, rng: x[:3]}, "must return 10 rows"),
        ({"contamination": lambda x, rng: x, "fraction": 0.1}, "`fraction` is for contaminations of a task"),
        ({"fraction": 0.1}, "which is not given"),
        ({"around": 3}, "`around` must be a posterior"),
        ({"levels": (1.5,)}, "`levels` must lie in"),
        ({"method": "nle"}, "`method` must be a trained method"),
    ],
)
def test_bad_input(options, complaint):
    with pytest.raises(nsm.InputError, match=complaint):
        a_map(**options)


def test_a_simulator_that_fails_is_named():
    broken = nsm.NumpySimulator(lambda rng, theta: np.full(2, np.nan))
    with pytest.raises(nsm.InputError, match="NaN or infinite values in 60 of 60 data sets"):
        a_map(simulator=broken)
