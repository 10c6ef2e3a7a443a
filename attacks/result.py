"""What came of an attack."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Result:
    """How often each thing happened, and everything that should not have."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest_s: float = 0.0
    memory_mb: float = 0.0
    detail: dict[str, Any] = field(default_factory=dict)
    """What else was seen, and the sizes that it was seen at."""

    def fail(self, what: str, why: str) -> None:
        """Something did not hold."""
        self.outcomes["FAILED"] += 1
        self.failures.append(f"{what}: {why}")

    def as_json(self) -> dict[str, Any]:
        """Everything, for a file."""
        return vars(self) | {"outcomes": dict(self.outcomes), "tried": sum(self.outcomes.values())}
