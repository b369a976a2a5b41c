"""Which tests begin first, and which share a process, where pytest-xdist runs files in several.

A long file that begins last runs alone, beside an idle core. So the dearest begin first; the rest stays shuffled.
In a fresh clone pytest rewrites each module of tests for its assertions. So each process collects from another
place on: what one has rewritten by then, the others read.
Tests that train in their own process stay in one, because each process imports torch, veRL and vLLM for ten seconds.
"""

from collections.abc import Generator
from pathlib import Path, PurePosixPath

import pytest

try:
    from xdist.scheduler import LoadFileScheduling
except ImportError:  # a run in one process needs no scheduler
    LoadFileScheduling = object

__all__ = ["Ordering", "rank_test", "share_process"]

_DEAREST = (
    "tests/job/",
    "tests/browser/",
    "tests/integration/worker/",
    "tests/integration/placement/",
    "tests/integration/faults/",
    "tests/integration/agents/",
)
"""By the seconds of docs/internals/tests.md."""
_TRAINING = "tests/job"
_OWN_SERVERS = ("tests/job/test_main_job.py", "tests/job/test_on_ray.py")
"""Files of that folder whose processes begin themselves: they take minutes, and run beside the others."""


def rank_test(nodeid: str) -> int:
    """Return the place of the test's file in the order of beginning; equal ones stay as they were shuffled."""
    return next((place for place, start in enumerate(_DEAREST) if nodeid.startswith(start)), len(_DEAREST))


def share_process(nodeid: str) -> str:
    """Return the name of what runs in one process: a file, or the folder of training."""
    file = nodeid.partition("::")[0]
    is_shared = PurePosixPath(file).parent.as_posix() == _TRAINING and file not in _OWN_SERVERS
    return _TRAINING if is_shared else file


class _Rotated(pytest.Dir):
    """A folder whose files and folders each process collects from another place on."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        found, worker = list(super().collect()), self.config.workerinput  # pyright: ignore[reportAttributeAccessIssue]
        first = int(worker["workerid"].removeprefix("gw")) * len(found) // worker["workercount"]
        return [*found[first:], *found[:first]]


class _Scheduling(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return share_process(nodeid)


class Ordering:
    """Plugin of every test process."""

    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Let processes that share the tests collect them from different places on."""
        is_shared = hasattr(parent.config, "workerinput") and not (path / "__init__.py").exists()
        return _Rotated.from_parent(parent, path=path) if is_shared else None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
        """Put the dearest first, once pytest-randomly has shuffled them: in all processes alike, so sorted before."""
        if hasattr(config, "workerinput"):
            items.sort(key=lambda item: item.nodeid)
        yield
        items.sort(key=lambda item: rank_test(item.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: object) -> object:
        """Return the scheduler of ``--dist loadfile``; None: that of xdist."""
        return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None
