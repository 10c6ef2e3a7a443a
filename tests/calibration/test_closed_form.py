import tracemalloc

import numpy as np
import pytest
from scipy import stats

import nsmbayes as nsm
from nsmbayes.calibration import CalibrationStatus, ClosedFormProblem, closed_form
from nsmbayes.calibration.closed_form import coverage_curve, loss_minimiser
from nsmbayes.losses import Quadratic
from nsmbayes.losses.conjugacy import gaussian_posterior
from nsmbayes.losses.statistics import FamilyLoss, total_loss
from nsmbayes.scatter import fit_location_scatter


def data(n, d_x, seed=3):
    x = np.random.default_rng(seed).standard_normal((n, d_x)) * 2 + 1
    x[: n // 10] -= 50
    return x


@pytest.fixture
def posterior(random_method):
    return random_method(1, 3).build_posterior(data(60, 1), beta=1.0)


def problem_of(posterior):
    return ClosedFormProblem(posterior.prior, posterior.statistics, posterior.resolution)


def test_resamples_equal_a_loop_that_refits_everything(posterior):
    drawn = problem_of(posterior).resample(12, seed=5)
    rows = np.random.default_rng(5).integers(60, size=(12, 60), dtype=np.int32)
    loss = posterior.statistics.loss
    for b in range(12):
        x = posterior.x[rows[b]]
        refitted = FamilyLoss(loss.family, loss.weight, fit_location_scatter(x, estimator="mcd"), loss.basis)
        expected = total_loss(refitted, x)
        for got, want in zip(drawn.losses, expected, strict=True):
            np.testing.assert_allclose(got[b], want, rtol=1e-8)
    assert drawn.degenerate == 0


def test_resamples_too_tied_for_a_scatter_use_the_full_one_and_are_counted(random_method):
    x = np.array([[0.0], [1.0], [2.0], [3.0], [4.0]])
    posterior = random_method(1, 2).build_posterior(x, beta=1.0)
    drawn = problem_of(posterior).resample(200, seed=0)
    assert 0 < drawn.degenerate < 200
    assert all(np.isfinite(a).all() for a in drawn.losses)


def test_coverage_equals_posteriors_built_one_by_one(posterior):
    drawn = problem_of(posterior).resample(100, seed=1)
    hat = posterior.mean + 0.3
    betas = np.array([1e-3, 0.05, 1.0, 20.0])
    expected = []
    for beta in betas:
        mean, precision = gaussian_posterior(posterior.prior, drawn.losses, beta)
        distance = np.einsum("bi,bij,bj->b", hat - mean, precision, hat - mean)
        expected.append((distance <= stats.chi2.ppf(0.9, 3)).mean())
    curve = coverage_curve(posterior.prior, drawn.losses, 0.9)
    np.testing.assert_allclose(curve(betas, hat), expected)
    assert len(set(expected)) > 1
    assert curve(0.05, hat) == expected[1]


@pytest.mark.parametrize("reference", ["posterior-mean", "minimiser"])
def test_root_search_finds_the_last_beta_that_meets_the_target(posterior, reference):
    found = nsm.calibration.RootCalibration(bootstraps=200, target=0.8, reference=reference, largest=1e3).calibrate(
        problem_of(posterior), seed=2
    )
    assert found.status == CalibrationStatus.REACHED
    curve = coverage_curve(posterior.prior, problem_of(posterior).resample(200, seed=2).losses, 0.8)

    def coverage(beta):
        return curve(beta, found.minimiser if reference == "minimiser" else posterior.with_beta(beta).mean)

    assert coverage(found.beta) >= 0.8
    assert coverage(found.beta * 1.0001) < 0.8
    np.testing.assert_allclose(found.coverages, [coverage(beta) for beta in found.betas])
    assert (found.betas[1:] > found.betas[:-1]).all()


def test_root_search_says_when_there_is_no_root(random_method):
    method = random_method(1, 3)
    far = nsm.GaussianPrior(np.full(3, 1e3), 1e-4 * np.eye(3))
    posterior = method.build_posterior(data(60, 1), beta=1.0, prior=far)
    small = nsm.calibration.RootCalibration(largest=1e-3, reference="minimiser")
    assert small.calibrate(problem_of(posterior), seed=0).status == CalibrationStatus.UNREACHED
    wide = method.build_posterior(data(60, 1), beta=1.0)
    tiny = nsm.calibration.RootCalibration(smallest=1e-9, largest=1e-8)
    assert tiny.calibrate(problem_of(wide), seed=0).status == CalibrationStatus.UNBOUNDED


def test_algorithm_1_follows_its_recursion(posterior):
    calibration = nsm.calibration.StochasticCalibration(initial_beta=5.0, steps=15, bootstraps=50)
    found = calibration.calibrate(problem_of(posterior), seed=3)
    assert len(found.betas) == 15
    beta = 5.0
    for t in range(15):
        assert found.betas[t] == pytest.approx(beta)
        step = np.clip(10 / (t + 11) * (found.coverages[t] - 0.95), -0.25, 0.25)
        beta = max(beta * np.exp(step), 0.05)
    assert found.beta == pytest.approx(beta)
    drawn = problem_of(posterior).resample(15 * 50, seed=3)
    second = Quadratic(*(a[50:100] for a in drawn.losses))
    assert found.coverages[1] == coverage_curve(posterior.prior, second, 0.95)(found.betas[1], found.minimiser)


def test_algorithm_1_stays_above_its_floor(random_method):
    far = nsm.GaussianPrior(np.full(3, 1e3), 1e-4 * np.eye(3))
    posterior = random_method(1, 3).build_posterior(data(60, 1), beta=1.0, prior=far)
    found = nsm.calibration.StochasticCalibration(initial_beta=1e-6, steps=40).calibrate(problem_of(posterior), seed=0)
    assert found.beta == 1e-8


def test_calibration_is_reproducible_and_depends_on_the_seed(random_method):
    method = random_method(1, 3, calibration=nsm.calibration.RootCalibration(largest=1e3))
    betas = [method.build_posterior(data(60, 1), seed=s).beta for s in (1, 1, 2)]
    assert betas[0] == betas[1] != betas[2]


@pytest.mark.parametrize("ridge", ["trace", "condition"])
def test_minimiser_minimises_the_penalised_loss(ridge):
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4)) * [1, 1, 1e-4, 1]
    A, B = root.T @ root, rng.standard_normal(4)
    hat = loss_minimiser(Quadratic(A, B, np.zeros(())), ridge=ridge, target_condition=100.0)
    if ridge == "trace":
        penalty = 1e-2 * np.trace(A) / 4 + 1e-12
    else:
        penalty = (np.linalg.eigvalsh(A)[-1] - 100 * np.linalg.eigvalsh(A)[0]) / 99
        assert np.linalg.cond(A + penalty * np.eye(4)) == pytest.approx(100, rel=1e-6)

    def objective(theta):
        return theta @ A @ theta + 2 * theta @ B + penalty * theta @ theta

    for direction in np.eye(4):
        assert objective(hat) < min(objective(hat + 1e-4 * direction), objective(hat - 1e-4 * direction))


def test_no_ridge_where_the_condition_is_good_enough():
    hat = loss_minimiser(Quadratic(np.diag([1.0, 2.0]), np.array([1.0, 1.0]), np.zeros(())), ridge="condition")
    np.testing.assert_allclose(hat, [-1.0, -0.5])


@pytest.mark.parametrize(("noise_levels", "resamples"), [((0.0,), 20), ((0.5, 1.0), 1000)])
def test_resamples_in_blocks_are_the_same_and_do_not_take_more_memory_than_a_block(
    random_method, noise_levels, resamples, monkeypatch
):
    problem = problem_of(random_method(1, 2, noise_levels=noise_levels).build_posterior(data(2000, 1), beta=1.0))
    whole = problem.resample(resamples, seed=5)
    monkeypatch.setattr(closed_form, "_MEMORY", 3 * 2000)
    tracemalloc.start()
    blocks = problem.resample(resamples, seed=5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    for got, want in zip(blocks.losses, whole.losses, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
    if resamples > 20:
        assert peak < resamples * 2000 * 8 / 2  # the counts of all resamples together


def test_observations_in_blocks_add_up(random_method, monkeypatch):
    posterior = random_method(1, 3).build_posterior(data(47, 1), beta=1.0)  # a size of its own: it is compiled anew
    monkeypatch.setattr(closed_form, "_ROWS", 10)
    drawn = problem_of(posterior).resample(3, seed=5)
    rows = np.random.default_rng(5).integers(47, size=(3, 47), dtype=np.int32)
    loss = posterior.statistics.loss
    for b in range(3):
        x = posterior.x[rows[b]]
        refitted = FamilyLoss(loss.family, loss.weight, fit_location_scatter(x, estimator="mcd"), loss.basis)
        for got, want in zip(drawn.losses, total_loss(refitted, x), strict=True):
            np.testing.assert_allclose(got[b], want, rtol=1e-8)


def test_noisy_points_of_few_observations_are_in_memory_at_once(random_method):
    loss = random_method(1, 2, noise_levels=(0.2, 0.8)).build_posterior(data(40, 1), beta=1.0).statistics.loss
    blocks = list(loss.blocks(data(40_000, 1), np.ones(40_000)))
    assert [block.n for block in blocks] == [16384, 16384, 40_000 - 2 * 16384]
    assert max(block.rows.quadrature_weight.nbytes for block in blocks) < 10 * 2**20
