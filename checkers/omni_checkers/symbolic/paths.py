"""All paths of a computation: it queries an oracle at every unknown condition, and runs once per answer."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from omni_kit.pysource.eval import Exhausted

T = TypeVar("T")
LIMIT = 256


class Oracle:
    """Answers one path's questions: first as the script says, then with 0; the same question has the same answer."""

    def __init__(self, script: list[int]) -> None:
        self._script = script
        self._answers: dict[str, int] = {}
        self.taken: list[tuple[str, int, int]] = []

    def choose(self, question: str, count: int) -> int:
        """Return one of `count` answers."""
        if question not in self._answers:
            position = len(self.taken)
            answer = self._script[position] if position < len(self._script) else 0
            self._answers[question] = answer
            self.taken.append((question, answer, count))
        return self._answers[question]

    def next_script(self) -> list[int] | None:
        """Return the script of the next path, or None after the last."""
        for position in range(len(self.taken) - 1, -1, -1):
            _, answer, count = self.taken[position]
            if answer + 1 < count:
                return [taken for _, taken, _ in self.taken[:position]] + [answer + 1]
        return None


def explore(run: Callable[[Oracle], T], limit: int = LIMIT) -> Iterator[T]:
    """Run a computation once for every path.

    Raises:
        Exhausted: there are more than `limit`.
    """
    script: list[int] | None = []
    for _ in range(limit):
        oracle = Oracle(script or [])
        yield run(oracle)
        script = oracle.next_script()
        if script is None:
            return
    raise Exhausted(f"more than {limit} paths")
