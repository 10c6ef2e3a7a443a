import numpy as np
import pytest
from support.moments import largest_z

from nsmbayes import tasks
from nsmbayes.errors import InputError
from nsmbayes.tasks import sir

pytestmark = pytest.mark.usefixtures("optimised")

TASK = tasks.get("sir")


def _plain(theta, n, rng, bug=None):
    """Summaries of n epidemics at one theta, as the paper describes them, step by step."""
    transmission, recovery = np.exp(theta[0]), np.exp(theta[1])
    reporting = 1 / (1 + np.exp(-theta[2]))
    infectious = np.full(n, min(max(int(np.round(np.exp(theta[3]))), 1), 1000))
    susceptible = 1000 - infectious
    reports = []
    for _ in range(150):
        infected = rng.binomial(susceptible, 1 - np.exp(-transmission * infectious / 1000))
        at_risk = infectious + infected if bug == "the new cases may recover at once" else infectious
        recovered = rng.binomial(at_risk, 1 - np.exp(-recovery))
        susceptible = susceptible - infected
        infectious = infectious + infected - recovered
        binomial_reports = bug == "reports without Poisson noise"
        reports.append(rng.binomial(infected, reporting) if binomial_reports else rng.poisson(reporting * infected))
    y = np.array(reports).T
    late = bug == "the last peak counts"
    peak = 149 - np.argmax(y[:, ::-1], axis=1) if late else np.argmax(y, axis=1)
    return np.stack([y.sum(axis=1) / 1000, (peak + 1) / 149, y.max(axis=1) / 1000], axis=1)


@pytest.fixture(scope="module")
def at_twenty_settings():
    """1,000 simulations at theta* and at 19 draws of the prior."""
    theta = np.concatenate([TASK.theta_true[None], TASK.prior.sample((19,), seed=8)])
    x = TASK.simulator(np.repeat(theta, 1000, axis=0), seed=3)
    return theta, x.reshape(20, 1000, 3)


def test_it_is_the_paper_s_task():
    logit = np.log(0.6 / 0.4)
    assert np.allclose(TASK.theta_true, [np.log(0.6), np.log(0.15), logit, np.log(20)], rtol=1e-15)
    assert np.allclose(TASK.prior.mean, [np.log(0.5), np.log(0.2), 0.0, np.log(20)], rtol=1e-15)
    assert np.allclose(np.diag(TASK.prior.covariance), [0.25, 0.25, 1.0, 0.49], rtol=1e-15)
    assert (sir.N, sir.T, sir.RETENTION) == (1000, 150, 0.5)
    assert list(TASK.contaminations) == ["undercounting", "heavy-tailed", "none"]
    fractions = {name: kind.fraction for name, kind in TASK.contaminations.items()}
    assert fractions == {"undercounting": 0.05, "heavy-tailed": 0.1, "none": 0.0}


# The largest of 120 z-scores, of means and variances, exceeds 5 for less than one seed in a thousand.
def test_moments_are_those_of_a_plain_simulator(at_twenty_settings):
    theta, x = at_twenty_settings
    rng = np.random.default_rng(0)
    assert max(largest_z(ours, _plain(row, 1000, rng)) for row, ours in zip(theta, x, strict=True)) < 5


@pytest.mark.parametrize(
    "bug", ["the new cases may recover at once", "reports without Poisson noise", "the last peak counts"]
)
def test_a_planted_bug_is_caught(at_twenty_settings, bug):
    theta, x = at_twenty_settings
    rng = np.random.default_rng(0)
    assert max(largest_z(ours, _plain(row, 1000, rng, bug)) for row, ours in zip(theta, x, strict=True)) > 7


def test_people_are_conserved():
    theta = TASK.prior.sample((300,), seed=4)
    shown = sir.epidemics(theta, seed=4)
    assert (shown.susceptible + shown.infectious + shown.recovered == 1000).all()
    assert min(shown.susceptible.min(), shown.infectious.min(), shown.recovered.min(), shown.reported.min()) == 0
    assert (np.diff(shown.susceptible) <= 0).all()
    assert (np.diff(shown.recovered) >= 0).all()
    assert np.array_equal(shown.infectious[:, 0], np.round(np.exp(theta[:, 3])))
    assert (shown.recovered[:, 0] == 0).all()
    assert shown.reported[np.diff(shown.susceptible) == 0].sum() == 0, "nothing to report, nothing reported"


def test_epidemics_are_those_of_the_simulator():
    theta = TASK.prior.sample((700,), seed=5)
    y = np.asarray(sir.epidemics(theta, seed=6).reported)
    expected = np.stack([y.sum(axis=1) / 1000, (y.argmax(axis=1) + 1) / 149, y.max(axis=1) / 1000], axis=1)
    assert np.allclose(TASK.simulator(theta, seed=6), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("theta", "expected"),
    [
        ([-40.0, 0.0, 0.0, 3.0], [0.0, 1 / 149, 0.0]),  # nobody is infected
        ([-40.0, 0.0, 0.0, -9.0], [0.0, 1 / 149, 0.0]),
        ([0.0, 0.0, -40.0, 3.0], [0.0, 1 / 149, 0.0]),  # nobody is reported
        ([0.0, 0.0, 0.0, 40.0], [0.0, 1 / 149, 0.0]),  # nobody is left to infect
    ],
)
def test_what_is_certain(theta, expected):
    assert TASK.simulator([theta], seed=0)[0].tolist() == expected


def test_extreme_parameters_give_numbers():
    theta = np.array(np.meshgrid(*[[-800.0, 800.0]] * 4)).reshape(4, -1).T
    assert np.isfinite(TASK.simulator(theta, seed=0)).all()
    everybody = sir.epidemics([[800.0, 800.0, 800.0, 0.0]], seed=0)
    assert everybody.susceptible[0, :2].tolist() == [999, 0]
    assert everybody.infectious[0, 2] == 0


def test_every_summary_lives_on_its_lattice():
    assert TASK.grid_steps == (1 / 1000, 1 / 149, 1 / 1000)
    steps = TASK.simulate(500, seed=1)[1] / TASK.grid_steps
    assert np.allclose(steps, np.round(steps), rtol=0, atol=1e-9)
    # None of the steps can be twice as long.
    assert all(np.gcd.reduce(np.round(column).astype(int)) == 1 for column in steps.T)


def test_undercounted_epidemics_lose_half_their_cases():
    obs = TASK.observe(400, seed=1)
    assert obs.is_outlier.sum() == 20
    before, after = obs.clean[obs.is_outlier], obs.x[obs.is_outlier]
    # Binomial(1000 x_1, 1/2): five standard deviations.
    assert (np.abs(after[:, 0] - before[:, 0] / 2) < 5 * np.sqrt(before[:, 0] / 4 / 1000)).all()
    assert (after[:, 2] < before[:, 2]).all()
    assert np.array_equal(obs.x[~obs.is_outlier], obs.clean[~obs.is_outlier])


@pytest.mark.parametrize("fraction", [0.05, 0.4])
def test_observed_reports_are_those_of_observe(fraction):
    obs = TASK.observe(60, seed=7, fraction=fraction)
    shown = sir.observed_reports(60, seed=7, fraction=fraction)
    assert np.array_equal(shown.is_outlier, obs.is_outlier)
    for y, x in ((shown.reported, obs.x), (shown.clean, obs.clean)):
        assert np.allclose(y.sum(axis=1) / 1000, x[:, 0], rtol=1e-14)
        assert np.allclose(y.max(axis=1) / 1000, x[:, 2], rtol=1e-14)
    assert (shown.reported <= shown.clean).all()


def test_a_larger_fraction_only_adds_outliers():
    few, many = (TASK.observe(100, seed=2, fraction=fraction) for fraction in (0.05, 0.3))
    assert np.array_equal(few.x[few.is_outlier], many.x[few.is_outlier])


def test_heavy_tailed_noise_is_standard_cauchy_on_every_summary():
    obs = TASK.observe(5000, seed=3, contamination="heavy-tailed", fraction=0.9)
    noise = (obs.x - obs.clean)[obs.is_outlier]
    # Quartiles of 4500 draws: standard errors of 0.041 and 0.023.
    assert np.abs(np.quantile(noise, [0.25, 0.75], axis=0) - [[-1.0], [1.0]]).max() < 5 * 0.041
    assert np.abs(np.median(noise, axis=0)).max() < 5 * 0.024
    assert TASK.observe(100, seed=3, contamination="heavy-tailed").is_outlier.sum() == 10


def test_bad_arguments():
    with pytest.raises(InputError, match="`theta` must have 4 parameters"):
        sir.epidemics(np.zeros((2, 3)), seed=0)
    with pytest.raises(InputError, match="`seed`"):
        sir.epidemics(np.zeros((2, 4)), seed=-1)
    with pytest.raises(InputError, match="`n` must be at least 1"):
        sir.observed_reports(0, seed=0)
    with pytest.raises(InputError, match="`fraction` must lie in"):
        sir.observed_reports(10, seed=0, fraction=1.0)
