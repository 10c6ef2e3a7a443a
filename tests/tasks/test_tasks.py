"""The contract that every task fulfils."""

import dataclasses

import jax
import numpy as np
import pytest

from nsmbayes import tasks
from nsmbayes._internal.precision import double_precision
from nsmbayes.errors import InputError
from nsmbayes.priors import GaussianPrior
from nsmbayes.tasks.base import Contamination, Task, all_at_once, in_chunks, observation_keys

SEED = 5
ALL_AT_ONCE = ("gnk", "gaussian", "pk")


def _alike(a, b):
    """The share of rows that are the same in both. On a grid_steps a few are, by chance."""
    return np.isclose(a, b).all(axis=1).mean()


@pytest.fixture(params=tasks.names())
def task(request):
    return tasks.get(request.param)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match=r"'gnkk'.*'gnk'"):
        tasks.get("gnkk")


def test_a_name_always_gives_the_same_task(task):
    assert tasks.get(task.name) is task


def test_description_is_consistent(task):
    assert isinstance(task.prior, GaussianPrior)
    assert task.theta_true.shape == (task.prior.dim,) == (len(task.parameter_names),)
    assert np.isfinite(task.prior.log_prob(task.theta_true))


def test_task_cannot_be_changed(task):
    with pytest.raises(ValueError, match="read-only"):
        task.theta_true[0] = 3.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.name = "other"


def test_simulate_shapes_and_precision(task):
    theta, x = task.simulate(50, seed=SEED)
    assert theta.shape == (50, task.prior.dim)
    assert x.shape == (50, len(task.x_names))
    assert theta.dtype == x.dtype == np.float64
    assert np.array_equal(theta, task.prior.sample((50,), SEED))
    assert np.isfinite(x).all()
    assert x.flags.writeable, "users change their arrays in place"
    assert jax.numpy.zeros(1).dtype == np.float32, "double precision must not leak into the user's own work"


def test_simulations_are_reproducible_and_follow_the_seed(task):
    theta, x = task.simulate(50, seed=SEED)
    assert np.array_equal(x, task.simulate(50, seed=SEED)[1])
    assert np.array_equal(x, task.simulator(theta, seed=SEED))
    assert _alike(x, task.simulator(theta, seed=SEED + 1)) < 0.1


def test_rows_are_independent(task):
    x = task.simulator(np.tile(task.theta_true, (50, 1)), seed=SEED)
    assert len(np.unique(x, axis=0)) >= 48


def test_observations_share_no_noise_with_simulations(task):
    simulated = task.simulator(np.tile(task.theta_true, (50, 1)), seed=SEED)
    assert _alike(task.observe(50, seed=SEED).clean, simulated) < 0.1


def test_observe_marks_what_it_changed(task):
    obs = task.observe(100, seed=SEED)
    changed = (obs.x != obs.clean).any(axis=1)
    assert obs.x.shape == obs.clean.shape == (100, len(task.x_names))
    assert np.array_equal(changed, obs.is_outlier)
    assert 0 < changed.sum() < 50


def test_clean_points_do_not_depend_on_the_contamination(task):
    clean = task.observe(60, seed=SEED).clean
    for name in task.contaminations:
        assert np.array_equal(task.observe(60, seed=SEED, contamination=name).clean, clean)
    first = task.default_contamination
    assert np.array_equal(task.observe(60, seed=SEED, contamination=first, fraction=0.4).clean, clean)
    assert _alike(task.observe(60, seed=SEED + 1).clean, clean) < 0.1


def test_contamination_and_fraction_can_be_chosen(task):
    none = task.observe(60, seed=SEED, contamination="none")
    assert np.array_equal(none.x, none.clean)
    assert not none.is_outlier.any()
    for name in list(task.contaminations)[:-1]:
        assert task.observe(60, seed=SEED, contamination=name, fraction=0.2).is_outlier.sum() == 12
        assert task.observe(60, seed=SEED, contamination=name, fraction=0.0).is_outlier.sum() == 0


def test_outlier_rows_follow_the_seed(task):
    first, again, other = (task.observe(60, seed=seed, fraction=0.5).is_outlier for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_any_whole_number_is_a_seed(task):
    huge = [task.observe(5, seed=2**70 + i).clean for i in range(2)]
    assert _alike(*huge) == 0


@double_precision
def test_a_row_does_not_depend_on_the_others(task):
    theta, keys = task.prior.sample((600,), seed=SEED), observation_keys(600, SEED)
    x = task.simulate_many(keys, theta)
    order = np.random.default_rng(0).permutation(600)
    assert np.array_equal(task.simulate_many(keys[order], theta[order]), x[order])
    for some in (slice(0, 1), slice(7, 8), slice(250, 263), slice(500, 600)):
        part = task.simulate_many(keys[some], theta[some])
        assert np.allclose(part, x[some], rtol=1e-13)
        # Without chunks another number of rows is another program, which may round otherwise.
        assert task.name in ALL_AT_ONCE or np.array_equal(part, x[some])


def test_no_bar_for_what_is_quick_and_none_unless_wanted(task, capsys):
    task.simulate(2, seed=SEED)
    capsys.readouterr()
    task.simulate(2, seed=SEED)
    task.simulate(2, seed=SEED, progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match="`progress` must be True or False"):
        task.simulate(2, seed=SEED, progress="no")


def test_lattice_is_described(task):
    assert task.grid_steps is None or len(task.grid_steps) == len(task.x_names)


def test_what_can_be_traced_is_what_simulates(task):
    if task.simulate_one is None:
        pytest.skip("nothing to trace")
    theta, keys = task.prior.sample((3,), seed=SEED), observation_keys(3, SEED)
    with jax.enable_x64(True):
        one_by_one = [task.simulate_one(key, jax.numpy.asarray(row)) for key, row in zip(keys, theta, strict=True)]
        assert np.allclose(task.simulate_many(keys, theta), np.stack(one_by_one), rtol=1e-12)


def test_exact_likelihood_is_that_of_the_simulator(task):
    # The expectation of p(x | theta') / p(x | theta) over x ~ p(. | theta) is 1 for every theta'. With theta' close by,
    # the mean of 20,000 ratios is nearly normal; one of up to five is beyond four standard errors for a seed in 3,000.
    if task.log_prob is None:
        pytest.skip("no exact likelihood")
    x = task.simulator(np.tile(task.theta_true, (20_000, 1)), seed=SEED)
    with jax.enable_x64(True):
        log_prob = jax.jit(jax.vmap(task.log_prob, (None, 0)))
        at_truth = np.asarray(log_prob(task.theta_true, x))
        steps = 0.1 * np.eye(task.prior.dim)
        ratios = [np.exp(np.asarray(log_prob(task.theta_true + step, x)) - at_truth) for step in steps]
    assert max(abs(_z(ratio)) for ratio in ratios) < 4
    lower = x[:, 0] < np.quantile(x[:, 0], 0.9)
    assert max(abs(_z(ratio[lower])) for ratio in ratios) > 4, "draws of another distribution are noticed"


def _z(ratio):
    return (ratio.mean() - 1) / (ratio.std(ddof=1) / np.sqrt(len(ratio)))


def _task(**changes):
    parts = {
        "name": "new",
        "prior": GaussianPrior([0.0], [1.0]),
        "theta_true": [0.0],
        "parameter_names": ("a",),
        "x_names": ("b", "c"),
        "simulate_many": all_at_once(lambda key, theta: jax.numpy.append(theta, jax.random.normal(key))),
        "contaminations": {
            "nothing": Contamination(lambda clean, keys, *, fraction, rng: (clean, clean[:, 0] < 0), 0.1)
        },
    }
    return Task(**{**parts, **changes})


@pytest.mark.parametrize("grid_steps", [(0.1,), (0.1, -0.1), (0.1, np.nan)])
def test_bad_lattice(grid_steps):
    with pytest.raises(InputError, match="`grid_steps`"):
        _task(grid_steps=grid_steps)


@pytest.mark.parametrize("m", [1, 3, 4, 9])
def test_chunks_give_what_all_at_once_gives(m):
    @jax.jit
    def rows(keys, theta, wanted):
        calls.append(theta.shape)
        return jax.vmap(lambda key, theta: jax.numpy.append(theta, jax.random.normal(key)))(keys, theta)

    calls = []
    whole, chunked = _task(), _task(simulate_many=in_chunks(rows, size=4))
    assert np.array_equal(whole.simulate(m, seed=SEED)[1], chunked.simulate(m, seed=SEED)[1])
    assert calls == [(4, 1)], "compiled once"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "`n` must be at least 1"),
        ({"n": 2.5}, "`n` must be a whole number"),
        ({"seed": 0.5}, "`seed` must be a whole number"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"fraction": 1.0}, "`fraction` must lie in"),
        ({"fraction": -0.1}, "`fraction` must lie in"),
        ({"contamination": "gremlins"}, "`contamination` must be one of .*'none'"),
        ({"contamination": "none", "fraction": 0.1}, "leave one of them out"),
    ],
)
def test_bad_arguments_of_observe(task, arguments, message):
    with pytest.raises(InputError, match=message):
        task.observe(**{"n": 10, "seed": 0, **arguments})


def test_bad_arguments_of_the_simulator(task):
    with pytest.raises(InputError, match=f"`theta` must have {task.prior.dim} parameters; got {task.prior.dim + 1}"):
        task.simulator(np.zeros((3, task.prior.dim + 1)), seed=0)
    with pytest.raises(InputError, match="`theta` has 1 row with NaN"):
        task.simulator(np.full((1, task.prior.dim), np.nan), seed=0)
    with pytest.raises(InputError, match="`m` must be at least 1"):
        task.simulate(0, seed=0)
    with pytest.raises(InputError, match="`seed`"):
        task.simulate(3, seed="today")
