"""An interactive page: drag an observation and watch the posterior, the weights and the NLE posterior change."""

from nsmbayes.explore.answers import Answer, DrawsAnswer, GaussianAnswer
from nsmbayes.explore.choices import Choices
from nsmbayes.explore.explorer import NLE, TRIMMED, Explorer, View
from nsmbayes.explore.start import explorer_kind, explorer_of

__all__ = [
    "explorer_of",
    "explorer_kind",
    "Explorer",
    "Choices",
    "View",
    "Answer",
    "GaussianAnswer",
    "DrawsAnswer",
    "NLE",
    "TRIMMED",
]
