"""Chromium, once in a process, and tabs of it that show the page; waits of its driver are waits like all others."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent_layer.view import build_view_app

from ..viewing import Viewed, empty, fresh, viewed, viewed_store
from ..waiting import WaitExpired, scaled
from .tabs import Tab, find_program, open_tab, serve_page

try:
    from playwright import sync_api
except ImportError:  # each test that needs it is skipped
    sync_api = None

__all__ = ["empty", "fresh", "viewed", "viewed_store"]  # found here by pytest

_FOLDER = Path(__file__).parent
_OPTIONS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


class _Chromium:
    """The browser of this process; while its driver runs, no other loop can run in the process's main thread."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self._browser: Any = None

    def start(self) -> Any:
        """Return the browser, which is started where it does not run."""
        if self._browser is None:
            program = find_program()
            play = self._cleanup.enter_context(sync_api.sync_playwright())
            launched = {"executable_path": program, "args": _OPTIONS, "timeout": scaled(60) * 1000}
            self._browser = play.chromium.launch(**launched)
            self._cleanup.callback(self._browser.close)
        return self._browser

    def end(self) -> None:
        self._browser = None
        self._cleanup.close()


_chromium = _Chromium()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Let a server or a browser that does not show itself in time be an expired wait."""
    return (yield from _expire())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Let what a tab does not show in time be an expired wait."""
    return (yield from _expire())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """End Chromium behind the last test of this folder."""
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.path.is_relative_to(_FOLDER):
            _chromium.end()


def pytest_sessionfinish() -> None:
    """End Chromium where a run stops before its last test."""
    _chromium.end()


def _expire() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except Exception as error:
        if sync_api and isinstance(error, sync_api.TimeoutError):
            raise WaitExpired(str(error)) from error
        raise


@pytest.fixture
def chromium() -> Any:
    """The browser of this process."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed; 'make setup' installs it")
    return _chromium.start()


@pytest.fixture(scope="module")
def served(viewed_store: Viewed) -> Iterator[str]:
    """Address of a page over the module's store."""
    with serve_page(build_view_app(viewed_store.source)) as address:
        yield address


@pytest.fixture
def tab(chromium: Any, viewed: Viewed, served: str) -> Iterator[Tab]:  # noqa: ARG001 - it checks that nothing changes
    """A tab for the module's store, which tests only read."""
    with open_tab(chromium, served) as tab:
        yield tab


@pytest.fixture
def fresh_tab(chromium: Any, fresh: Viewed) -> Iterator[Tab]:
    """A tab for the test's own store."""
    with serve_page(build_view_app(fresh.source)) as address, open_tab(chromium, address) as tab:
        yield tab
