"""Meeting of two threads of one process: the training loop decides, veRL's trainer acts.

The loop's thread calls ``act`` and ``update``, and waits for the result. veRL's thread answers while it waits for a
batch or for the end of its step. So veRL's workers and servers are used from one thread only, and neither of the two
can be a step ahead of the other.
"""

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock
from typing import NamedTuple, TypeVar

from agent_layer.errors import AgentLayerError
from trainer_adapter.data import TrainingBatch
from trainer_adapter.verl import UpdateReport

_T = TypeVar("_T")

_LOOK_SECONDS = 0.5
"""Until a dead engine is noticed, each call to it fails."""


class RunEnded(Exception):  # noqa: N818  # no error: the loop needs nothing more of veRL
    """The training loop has ended."""


class UpdateRequest(NamedTuple):
    """A batch that waits to be learned from."""

    batch: TrainingBatch
    step: int
    """Step of the run, from 0."""
    version: int
    """Policy version of the present weights."""
    report: Future[UpdateReport]


class Bridge:
    """Requests of the training loop, in order.

    Args:
        look: called by veRL's thread again and again while it waits for one.
    """

    def __init__(self, look: Callable[[], None] = lambda: None) -> None:
        self._look = look
        self._requests: SimpleQueue[UpdateRequest | Callable[[], None] | None] = SimpleQueue()
        self._waiting: set[Future[object]] = set()
        self._lock = Lock()
        self._failure: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """Whether veRL's thread has failed: nothing more comes of it."""
        return self._failure is not None

    def act(self, action: Callable[[], _T]) -> _T:
        """Let veRL's thread run an action; return its result. Called by the loop's thread.

        Raises: AgentLayerError: veRL's thread has failed. What the action raises.
        """
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(action())
            except BaseException as error:  # noqa: BLE001  # the caller's thread raises it
                future.set_exception(error)

        return self._wait(future, run)

    def update(self, batch: TrainingBatch, step: int, version: int) -> UpdateReport:
        """Let veRL learn from a batch; return once its weights are updated. Called by the loop's thread.

        Raises: AgentLayerError: veRL's thread has failed.
        """
        future: Future[UpdateReport] = Future()
        return self._wait(future, UpdateRequest(batch, step, version, future))

    def end(self) -> None:
        """Let veRL's thread end. Called by the loop's thread, last."""
        self._requests.put(None)

    def next_update(self) -> UpdateRequest:
        """Run actions until there is a batch to learn from. Called by veRL's thread.

        Raises: RunEnded: there is none any more.
        """
        while not isinstance(request := self._next_request(), UpdateRequest):
            if request is None:
                raise RunEnded
            request()
        return request

    def run_actions(self, until: Callable[[], bool]) -> None:
        """Run actions until a condition holds. Called by veRL's thread.

        Raises: RunEnded: the loop has ended before.
        """
        while not until():
            request = self._next_request()
            if request is None:
                raise RunEnded
            if isinstance(request, UpdateRequest):
                raise TypeError("bridge: expected an action between two updates, found a batch")
            request()

    def fail(self, error: BaseException) -> None:
        """Let all that wait, and all later calls, raise. Called by veRL's thread, last."""
        with self._lock:
            self._failure = error
            waiting = list(self._waiting)
        for future in waiting:
            if not future.done():
                future.set_exception(_explain(error))

    def _next_request(self) -> UpdateRequest | Callable[[], None] | None:
        while True:
            try:
                return self._requests.get(timeout=_LOOK_SECONDS)
            except Empty:
                self._look()

    def _wait(self, future: "Future[_T]", request: UpdateRequest | Callable[[], None]) -> _T:
        with self._lock:
            if self._failure is not None:
                raise _explain(self._failure)
            self._waiting.add(future)  # pyright: ignore[reportArgumentType]  # only its exception is set
        self._requests.put(request)
        try:
            return future.result()
        finally:
            with self._lock:
                self._waiting.discard(future)  # pyright: ignore[reportArgumentType]


def _explain(error: BaseException) -> AgentLayerError:
    return AgentLayerError(f"veRL: expected its trainer to go on, but it failed: {type(error).__name__}: {error}")
