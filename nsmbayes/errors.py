"""The errors that users meet. Their messages say what is wrong and what to do about it."""


class InputError(ValueError):
    """An argument that cannot be used. The message says which one, why, and what to do about it."""


class NotTrainedError(RuntimeError):
    """A posterior was asked of a method that has not been trained."""


class TrainingError(RuntimeError):
    """Training failed: it left no network that could be used."""


class SimulationError(RuntimeError):
    """Simulations failed, too many of them or all; those that are stored are kept."""


class ConvergenceError(RuntimeError):
    """What a sampler returned, or would have returned, are not draws from the posterior."""


class BudgetError(RuntimeError):
    """A method would have called the simulator more often than it was allowed to."""


class FailedRepeatsError(RuntimeError):
    """Some repeats of an experiment failed; all others are saved."""
