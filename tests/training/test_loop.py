import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from nsmbayes import TrainingSettings
from nsmbayes.errors import InputError, TrainingError
from nsmbayes.surrogates import Standardiser, init_mixture_density_network
from nsmbayes.training import BatchLoss, Stopped, fit, fit_density, interrupts_are_final


class Line(eqx.Module):
    """x = slope theta, with a standardiser that training must leave alone."""

    slope: Array
    scale: Standardiser


def squared(model, theta, x):
    return ((x - model.slope * theta) ** 2).sum()


def problem(m=2000, noise=0.1):
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((m, 1))
    model = Line(jnp.zeros(1), Standardiser(jnp.zeros(1), jnp.full(1, 3.0), asinh=False))
    return model, theta, 2 * theta + noise * rng.standard_normal((m, 1))


def run(settings, *, loss=squared, seed=0, progress=False, **options):
    model, theta, x = problem(**options)
    return fit(model, loss, theta, x, settings=settings, key=jax.random.key(seed), progress=progress)


def test_finds_the_minimum_and_leaves_standardisers_alone():
    model, history = run(TrainingSettings(learning_rate=0.05, max_epochs=60))
    assert float(model.slope[0]) == pytest.approx(2, abs=0.01)
    assert float(model.scale.scale[0]) == 3.0
    assert history.best_validation_loss == pytest.approx(0.01, rel=0.2)


def test_stops_early_and_restores_the_best_weights():
    model, history = run(TrainingSettings(learning_rate=0.3, patience=4, batch_size=16, max_epochs=500))
    assert history.stopped == Stopped.EARLY
    assert len(history.train_loss) == history.best_epoch + 5
    _, theta, x = problem()
    order = np.asarray(jax.random.permutation(jax.random.split(jax.random.key(0))[1], 2000))[:400]
    kept = ((x[order] - float(model.slope[0]) * theta[order]) ** 2).mean()
    assert kept == pytest.approx(history.best_validation_loss, rel=1e-4)
    assert history.best_validation_loss == history.validation_loss.min()


def test_runs_out_of_epochs():
    _, history = run(TrainingSettings(max_epochs=3))
    assert history.stopped == Stopped.MAX_EPOCHS
    assert len(history.validation_loss) == 3


def test_same_seed_same_result():
    slopes = [float(run(TrainingSettings(max_epochs=3), seed=s)[0].slope[0]) for s in (1, 1, 2)]
    assert slopes[0] == slopes[1] != slopes[2]


def test_interrupt_keeps_the_best_weights_and_says_so(interrupted_training):
    with interrupted_training(after=3), pytest.warns(UserWarning, match="interrupted after 3 of at most 60 epochs"):
        model, history = run(TrainingSettings(learning_rate=0.05, max_epochs=60))
    assert history.stopped == Stopped.INTERRUPTED
    assert len(history.train_loss) == 3
    assert float(model.slope[0]) > 0.1


def test_interrupts_can_be_final(interrupted_training):
    with interrupted_training(after=3), interrupts_are_final(), pytest.raises(KeyboardInterrupt):
        run(TrainingSettings(max_epochs=60))
    with interrupted_training(after=3), pytest.warns(UserWarning, match="interrupted"):  # no longer
        run(TrainingSettings(max_epochs=60))


def test_either_of_two_trainings_may_be_interrupted(interrupted_training):
    """A mixture of many columns is trained a second time, around its linear trend."""
    rng = np.random.default_rng(0)
    theta, noise = rng.standard_normal((300, 1)), rng.standard_normal((300, 2))
    plain = Standardiser(jnp.zeros(2), jnp.ones(2), asinh=False), Standardiser(jnp.zeros(1), jnp.ones(1), asinh=False)
    network = init_mixture_density_network(
        jax.random.key(0), *plain, components=1, hidden=(4,), floor=0.1, ceiling=10.0, factor="precision"
    )
    for after in (2, 7):  # five epochs each
        with interrupted_training(after), pytest.warns(UserWarning, match="interrupted after 2 of at most 5 epochs"):
            _, history = fit_density(
                network,
                theta,
                theta + noise,
                settings=TrainingSettings(max_epochs=5),
                key=jax.random.key(0),
                progress=False,
            )
        assert history.stopped == Stopped.INTERRUPTED


def test_a_loss_that_explodes_is_an_error():
    with pytest.raises(TrainingError, match=r"became nan in epoch 0. Lower `learning_rate`, and look for extreme sim"):
        run(TrainingSettings(max_epochs=3), loss=lambda model, theta, x: jnp.log(-1 - squared(model, theta, x)))


def test_a_validation_loss_that_is_never_finite_is_an_error():
    model, theta, x = problem()
    held_out = np.asarray(jax.random.permutation(jax.random.split(jax.random.key(0))[1], 2000))[:400]
    x[held_out] = np.nan
    with pytest.raises(TrainingError, match="validation loss was never finite"):
        fit(model, squared, theta, x, settings=TrainingSettings(max_epochs=3), key=jax.random.key(0), progress=False)


def test_fewer_simulations_than_a_batch():
    model, _ = run(TrainingSettings(learning_rate=0.05, max_epochs=200, patience=200), m=50)
    assert float(model.slope[0]) == pytest.approx(2, abs=0.1)


def test_one_simulation_is_too_few():
    with pytest.raises(InputError, match="at least 2 simulations"):
        run(TrainingSettings(), m=1)


def test_progress_shows_losses(capsys):
    run(TrainingSettings(max_epochs=2), progress=True)
    shown = capsys.readouterr().err
    assert "validation" in shown
    assert "epoch" in shown


def test_a_second_training_of_the_same_shape_compiles_nothing():
    traces = []

    def counted(model, theta, x):
        traces.append(1)
        return squared(model, theta, x)

    run(TrainingSettings(max_epochs=2), loss=counted)
    once = len(traces)
    run(TrainingSettings(max_epochs=2), loss=counted, seed=1)
    assert len(traces) == once > 0


class MeanSquared(BatchLoss):
    """The loss of the tests above, times a number that is not trained."""

    factor: Array

    def __call__(self, model, theta, x, key):
        return self.factor * jax.vmap(squared, (None, 0, 0))(model, theta, x).mean()


def test_a_loss_of_batches_is_a_loss():
    """A mean over the batch, written as a loss of the whole, trains to the same weights."""
    settings = TrainingSettings(learning_rate=0.05, max_epochs=5)
    one, _ = run(settings)
    factor = jnp.ones(())
    whole, history = run(settings, loss=MeanSquared(factor))
    assert float(whole.slope[0]) == pytest.approx(float(one.slope[0]), rel=1e-4)
    assert float(factor) == 1.0
    assert history.validation_loss[-1] < history.validation_loss[0]
