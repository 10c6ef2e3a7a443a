"""The contract of the design: what users, docs and checks rely on, word for word where possible."""

import ast
import inspect
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsmbayes as nsm
from nsmbayes.surrogates import NoisyFamily

BRIEF = nsm.TrainingSettings(max_epochs=2)


def small(task, *, seed=0, convert=np.asarray, **options):
    """A method trained on next to nothing."""
    theta, x = task.simulate(300, seed=2)
    method = nsm.NSMBayesConj(task.prior, hidden=8, excess=None).append_simulations(convert(theta), convert(x))
    return method.train(seed=seed, settings=BRIEF, **({"progress": False} | options))


class Tensor:
    """As much of a torch tensor as NumPy must be protected from: on a device, and with a gradient."""

    def __init__(self, values, *, attached=True, device="cuda"):
        self.values, self.attached, self.device = np.asarray(values, np.float32), attached, device

    def detach(self):
        return Tensor(self.values, attached=False, device=self.device)

    def cpu(self):
        return Tensor(self.values, attached=self.attached, device="cpu")

    def __array__(self, dtype=None, copy=None):
        if self.attached or self.device != "cpu":
            raise RuntimeError("Can't call numpy() on this tensor. Use tensor.detach().cpu() first.")
        return np.array(self.values, dtype=dtype)


@pytest.fixture(scope="module")
def task():
    return nsm.tasks.get("gnk")


@pytest.fixture(scope="module")
def observed(task):
    return task.observe(100, seed=1)


@pytest.fixture(scope="module")
def posterior(trained_gnk, observed):
    return trained_gnk.build_posterior(observed.x, seed=0)


def _is_array(value, *shape):
    return type(value) is np.ndarray and value.dtype == np.float64 and value.shape == shape and np.isfinite(value).all()


def test_task(task):
    assert task.name == "gnk"
    assert "gnk" in nsm.tasks.names()
    assert isinstance(task.prior, nsm.GaussianPrior)
    assert _is_array(task.theta_true, 4)
    assert task.prior.dim == len(task.parameter_names) == 4


def test_simulate(task):
    theta, x = task.simulate(1000, seed=0)
    assert _is_array(theta, 1000, 4)
    assert _is_array(x, 1000, 1)
    again = task.simulate(1000, seed=0)
    other = task.simulate(1000, seed=1)
    assert np.array_equal(theta, again[0])
    assert np.array_equal(x, again[1])
    assert not np.intersect1d(theta, other[0]).size
    assert not np.intersect1d(x, other[1]).size


def test_observe(task, observed):
    x, clean, is_outlier = observed
    assert _is_array(x, 100, 1)
    assert _is_array(clean, 100, 1)
    assert is_outlier.shape == (100,)
    assert is_outlier.dtype == bool
    assert is_outlier.sum() == 10
    assert np.array_equal((x != clean).any(axis=1), is_outlier)
    untouched = task.observe(100, seed=1, contamination="none")
    assert np.array_equal(untouched.x, clean)
    assert not untouched.is_outlier.any()
    half = task.observe(100, seed=1, contamination=next(iter(task.contaminations)), fraction=0.5)
    assert half.is_outlier.sum() == 50
    assert np.array_equal(half.clean, clean)


def test_method(task):
    method = nsm.NSMBayesConj(task.prior, hidden=8, excess=None)
    theta, x = task.simulate(300, seed=0)
    assert method.append_simulations(theta[:200], x[:200]) is method
    assert method.append_simulations(theta[200:], x[200:]).train(0, settings=BRIEF, progress=False) is method
    assert len(method.history.train_loss) == 2


def test_posterior(trained_gnk, observed, posterior):
    assert trained_gnk.amortised == "fully"
    assert posterior.n == 100
    draws = posterior.sample((500,), seed=0)
    assert _is_array(draws, 500, 4)
    assert np.array_equal(draws, posterior.sample((500,), seed=0))
    assert not np.array_equal(draws, posterior.sample((500,), seed=1))
    assert posterior.sample((2, 3), seed=0).shape == (2, 3, 4)
    assert _is_array(posterior.mean, 4)
    assert _is_array(posterior.covariance, 4, 4)
    assert np.linalg.eigvalsh(posterior.covariance).min() > 0
    assert np.abs((draws.mean(axis=0) - posterior.mean) / posterior.std).max() < 5 / np.sqrt(500)
    assert isinstance(posterior.beta, float)
    assert posterior.beta > 0
    assert _is_array(posterior.weights, 100)
    assert posterior.weights.min() >= 0
    assert posterior.weights.max() <= 1
    assert posterior.weights[observed.is_outlier].max() < 0.1 < np.median(posterior.weights)


def test_update(observed, posterior):
    before = posterior.mean.copy()
    more = posterior.update(observed.clean[:10])
    assert more.n == 110
    assert more.beta == posterior.beta
    assert not np.array_equal(more.mean, before)
    assert np.array_equal(posterior.mean, before)
    # exact: in two steps or in one
    steps = posterior.update(observed.clean[:4]).update(observed.clean[4:10])
    assert np.allclose(steps.mean, more.mean, rtol=1e-10)
    assert np.allclose(steps.covariance, more.covariance, rtol=1e-10)


def test_summary(posterior):
    text = posterior.summary()
    assert isinstance(text, str)
    for name, mean, std in zip(posterior.parameter_names, posterior.mean, posterior.std, strict=True):
        (line,) = [line for line in text.splitlines() if line.startswith(name)]
        assert line[len(name) :].split()[:2] == [f"{mean:.3f}", f"{std:.3f}"]
    assert f"{(posterior.weights < 0.1).sum()} of 100 observations have a weight below 0.1" in text


def test_to_arviz(posterior):
    arviz = pytest.importorskip("arviz")
    data = posterior.to_arviz(50, chains=2, seed=3)
    kind = "DataTree" if int(arviz.__version__.partition(".")[0]) >= 1 else "InferenceData"
    assert type(data).__name__ == kind
    draws = np.stack([data.posterior[name].to_numpy() for name in posterior.parameter_names], axis=-1)
    assert np.array_equal(draws, posterior.sample((2, 50), seed=3))
    assert np.array_equal(data.observed_data["weight"].to_numpy(), posterior.weights)


@pytest.mark.parametrize(
    "convert",
    [
        np.float32,
        lambda a: a.astype(np.float32).tolist(),
        jnp.asarray,
        Tensor,
        lambda a: np.asfortranarray(np.float32(a)),
    ],
    ids=["float32", "lists", "JAX", "torch", "Fortran order"],
)
def test_arrays_of_any_make(convert, task):
    """Simulations and observations as NumPy, JAX or torch have them give what NumPy's own give."""
    new = task.observe(100, seed=3).x
    results = []
    for make in (lambda a: np.asarray(a, np.float32).astype(np.float64), convert):
        posterior = small(task, convert=make).build_posterior(make(new), beta=0.1).update(make(new[:8]))
        results.append([posterior.mean, posterior.covariance, posterior.log_prob(make(task.theta_true))])
    for one, two in zip(*results, strict=True):
        assert np.array_equal(one, two)


def test_a_prior_of_numpyro(task):
    dist = pytest.importorskip("numpyro.distributions")
    theirs = dist.MultivariateNormal(jnp.asarray(task.prior.mean), jnp.asarray(task.prior.covariance))
    ours = nsm.NSMBayesConj(theirs).prior
    assert np.allclose(ours.mean, task.prior.mean)
    assert np.allclose(ours.covariance, task.prior.covariance)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8, lambda i: np.array(i)])
def test_seeds_are_whole_numbers_of_any_kind(kind, task, posterior):
    assert np.array_equal(posterior.sample((3,), seed=kind(7)), posterior.sample((3,), seed=7))
    assert np.array_equal(task.simulate(3, seed=kind(7))[1], task.simulate(3, seed=7)[1])


def test_the_seed_decides_training_and_calibration(task, observed):
    one, same, other = small(task), small(task), small(task, seed=1)
    assert np.array_equal(one.family.T.W, same.family.T.W)
    assert not np.array_equal(one.family.T.W, other.family.T.W)
    options = {"hidden": 8, "calibration": nsm.calibration.RootCalibration(largest=1e6)}
    one, same = (nsm.NSMBayesConj(task.prior, excess=None, **options).adopt(method) for method in (one, same))
    coverages = [
        m.build_posterior(observed.x, seed=s).calibration.coverages for m, s in ((one, 0), (same, 0), (one, 1))
    ]
    assert np.array_equal(coverages[0], coverages[1])
    assert not np.array_equal(coverages[0], coverages[2])


def test_training_again_compiles_nothing(task, monkeypatch):
    traces, derivatives = [], NoisyFamily.network_derivatives

    def counted(self, *arguments):
        traces.append(1)
        return derivatives(self, *arguments)

    monkeypatch.setattr(NoisyFamily, "network_derivatives", counted)
    small(task)
    before = len(traces)
    small(task, seed=1)
    assert len(traces) == before


def test_the_global_random_state_is_left_alone(task, trained_gnk, observed):
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    task.simulate(10, seed=0)
    trained_gnk.build_posterior(observed.x).sample((5,), seed=0)
    assert np.array_equal(state, np.random.get_state()[1])  # noqa: NPY002


def test_silent_unless_asked(task, observed, capfd):
    small(task).build_posterior(observed.x).update(observed.x[:3]).summary()
    assert capfd.readouterr() == ("", "")
    small(task, progress=True)
    said = capfd.readouterr()
    assert said.out == ""
    assert "training" in said.err
    assert "2/2" in said.err


def test_arguments_are_not_written_to(task, observed):
    theta, x, new = *task.simulate(300, seed=0), observed.x.copy()
    copies = theta.copy(), x.copy(), new.copy()
    for a in (theta, x, new):
        a.setflags(write=False)
    method = (
        nsm.NSMBayesConj(task.prior, hidden=8, excess=None)
        .append_simulations(theta, x)
        .train(settings=BRIEF, progress=False)
    )
    posterior = method.build_posterior(new, beta=0.1)
    for a, copy in zip((theta, x, new), copies, strict=True):
        assert np.array_equal(a, copy)
    # and what the posterior holds is not moved by later changes of the user's array
    new.setflags(write=True)
    mean = posterior.update(copies[2][:3]).mean
    new[:] = 0.0
    assert np.array_equal(posterior.update(copies[2][:3]).mean, mean)


def test_the_users_precision_makes_no_difference(task, trained_gnk, observed, posterior):
    with jax.enable_x64(True):
        assert np.array_equal(trained_gnk.build_posterior(observed.x, seed=0).mean, posterior.mean)
        theta, x = task.simulate(20, seed=0)
    assert np.array_equal(theta, task.simulate(20, seed=0)[0])
    assert np.array_equal(x, task.simulate(20, seed=0)[1])


PUBLIC = sorted(name for name in dir(nsm) if not name.startswith("_"))


def test_public_names_are_there():
    promised = {
        "tasks", "NSMBayes", "NSMBayesConj", "NLE", "RSNLE", "NPERS", "NPLMMD", "ACE", "GBISR", "load",
        "GaussianPrior", "MDN", "MAF", "TrainingSettings", "JaxSimulator", "NumpySimulator", "simulate_sets",
        "InputError", "NotTrainedError", "TrainingError", "ConvergenceError", "BudgetError",
        "weights", "calibration", "metrics", "posteriors", "robustness", "diagnostics", "plotting", "report",
    }  # fmt: skip
    assert promised <= set(PUBLIC)
    assert issubclass(nsm.InputError, ValueError)
    assert nsm.__version__
    with pytest.raises(AttributeError, match="no attribute 'NSMBayess'"):
        _ = nsm.NSMBayess


def test_the_lazy_names_are_those_that_type_checkers_see():
    """`__init__` says every name twice, for Python and for type checkers: they must agree."""
    tree = ast.parse(inspect.getsource(nsm))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.asname for node in block.body for alias in node.names}
    assert seen == {name for name in nsm.__all__ if name != "__version__"}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_documented(name):
    """It has a docstring of its own, and so have the public methods and properties that it adds."""
    thing = getattr(nsm, name)
    assert isinstance(thing, type | types.FunctionType | types.ModuleType), f"{name} is a {type(thing)}"
    assert (thing.__doc__ or "").strip(), name
    if not isinstance(thing, type):
        return
    assert "__doc__" in vars(thing)
    assert not thing.__doc__.startswith(f"{name}("), f"the docstring of {name} is what dataclass wrote"
    for member, value in inspect.getmembers(thing):
        owner = next((base for base in thing.__mro__ if member in vars(base)), None)
        if member.startswith("_") or owner is None or not owner.__module__.startswith("nsmbayes"):
            continue
        if inspect.isroutine(value) or isinstance(value, property):
            assert (inspect.getdoc(value) or "").strip(), f"{name}.{member}"


def test_what_the_package_offers_is_its_own():
    """No name of NumPy, JAX or typing has slipped into the public namespace."""
    for name in PUBLIC:
        thing = getattr(nsm, name)
        module = thing.__name__ if isinstance(thing, types.ModuleType) else thing.__module__
        assert module.startswith("nsmbayes"), name
