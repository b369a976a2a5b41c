"""Options of the test run, and the order of its folders.

Fixtures stand in ``tests/conftest.py``: from here nothing of ``tests`` can be imported, because a dependency brings a
package of that name.
"""

import gc
from pathlib import Path

import pytest

_TESTS = Path(__file__).parent / "tests"
_FOLDERS = ("soak", "job", "gpu", "servers", "integration", "browser", "unit")
"""Folders, the longest tests first, so that processes which share the tests end at about the same time."""
_FIRST_JOB = "test_main_job.py"
"""It starts an engine and a trainer, and takes longest."""

gc.disable()  # what is imported and collected stays: to look through it again and again takes a third of that time


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from now on, but not among what imports and the list of tests hold."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this suite."""
    help_text = (
        "tests of tests/servers, and makes of Redis and S3 that they run over: a smoke test of each make, all tests"
        " over the first make of each list with a smoke test of the others, or all tests over all makes"
    )
    parser.addoption("--servers", choices=("smoke", "first", "all"), default="first", help=help_text)
    parser.addoption("--no-rerun", action="store_true", help="run no test again whose wait expired (tests/reruns.py)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out other makes of servers unless they are asked for, and put folders of long tests first."""
    left_out = {one for one in items if _is_left_out(one, config.getoption("--servers"))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
    items[:] = [one for one in items if one not in left_out]
    items.sort(key=lambda item: (_FOLDERS.index(_find_folder(item)), item.path.name != _FIRST_JOB))


def _is_left_out(item: pytest.Item, servers: str) -> bool:
    if servers == "all" or item.get_closest_marker("smoke"):
        return False
    is_of_servers = servers == "smoke" and _find_folder(item) == "servers"
    return is_of_servers or item.get_closest_marker("other_make") is not None


def _find_folder(item: pytest.Item) -> str:
    return item.path.relative_to(_TESTS).parts[0]
