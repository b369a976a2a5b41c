"""Tabs of a browser that show the page, and what their tests ask of them."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from agent_layer.local.scripted.serving import serve_in_thread

from ..boxes import end_without
from ..waiting import scaled

__all__ = ["Tab", "find_faults", "find_program", "open_tab", "serve_page"]

_LIMIT_SECONDS = 60.0
_PROGRAM = os.environ.get("AGENT_LAYER_TEST_CHROMIUM")
_PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Cheapest first: the shell draws no window around a tab, and needs half the processor time."""
_AXE = Path(sys.prefix) / "node" / "node_modules" / "axe-core" / "axe.min.js"
_RULES = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
_FOUND = """async tags => (await axe.run(document, {runOnly: tags, resultTypes: ['violations']})).violations
  .flatMap(({id, nodes}) => nodes.map(node => `${id}: ${node.target} ${node.any[0]?.message ?? ''}`))"""


@dataclass
class Tab:
    """A page, and what went wrong in it."""

    page: Any
    address: str
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    held: list[list[Any]] = field(default_factory=list)
    """Requests that wait for the test."""
    is_closing: bool = False

    def open(self, view: str) -> str:
        """Show a view; return its text once its last answer is there."""
        self.page.goto("about:blank")
        self.page.goto(self.address + view)
        self.page.wait_for_selector("h1")
        self.page.wait_for_selector(".loading", state="detached")
        return self.page.inner_text("main")

    def hold(self, pattern: str) -> list[Any]:
        """Let requests to these addresses wait; return them, which grow, newest first."""
        held: list[Any] = []
        self.page.route(pattern, lambda prompt: prompt.abort() if self.is_closing else held.insert(0, prompt))
        self.held.append(held)
        return held

    def ask(self, path: str) -> Any:
        """Ask the API itself."""
        return self.page.request.get(f"{self.address}api/v1/{path}").json()


class _Page:
    """What ``serve_in_thread`` serves."""

    url = ""

    def __init__(self, app: web.Application) -> None:
        self._app = app

    def app(self) -> web.Application:
        return self._app


@contextmanager
def serve_page(app: web.Application) -> Iterator[str]:
    """Serve a page during the block; yields its address."""
    with serve_in_thread(_Page(app)) as served:
        yield f"{served.url}/"


@contextmanager
def open_tab(chromium: Any, address: str) -> Iterator[Tab]:
    """Open a tab of a browser that has seen nothing yet."""
    tab = Tab(chromium.new_page(viewport={"width": 1280, "height": 900}), address)
    tab.page.set_default_timeout(scaled(_LIMIT_SECONDS) * 1000)
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("request", lambda prompt: tab.hosts.add(prompt.url.split("/")[2]))
    try:
        yield tab
    finally:
        tab.is_closing = True
        for held in tab.held:
            while held:
                held.pop().abort()
        tab.page.close()


def find_program() -> str:
    """Return the path of Chromium; where none is installed the test is skipped, or fails if it is required."""
    program = _PROGRAM or next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        end_without("Chromium is not installed: package chromium-headless-shell, or set its path", "chromium")
    return program


def find_faults(page: Any) -> list[str]:
    """Return what axe-core finds wrong with what a page shows now; ``make setup test`` fetches it from npm."""
    if not _AXE.is_file():
        pytest.skip("axe-core is not installed: 'make test' fetches it where npm is")
    page.evaluate(_AXE.read_text())
    return page.evaluate(_FOUND, _RULES)
