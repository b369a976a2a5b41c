"""Runs files of tests with the pytest of the box and the settings of the repository; writes each test's result as JSON.

Runs in a box with Python 3.8 or newer, in the folder of the repository; the arguments are files of tests. The judged
code shares this process and can forge every result: see ``repository_tests.py``.

Output: ``{"results": [[id, "passed" | "failed" | "skipped" | "xpassed"], ...]}``. A test has passed if it, its set-up
and its tear-down have, and nothing expected it to fail.
"""

from __future__ import annotations

import io
import json
import os
import sys

import pytest

TYPE_CHECKING = False  # importing typing would cost each box milliseconds
if TYPE_CHECKING:
    from typing import Any

_dumps = json.dumps  # before judged code is imported, which may replace it


class Reporter:
    """Plug-in of pytest that keeps one result per test, the worst of its phases."""

    def __init__(self) -> None:
        self.results: dict[str, str] = {}
        self._called: set[str] = set()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the result of one phase."""
        known = self.results.get(report.nodeid)
        if report.failed or known == "failed":
            self.results[report.nodeid] = "failed"
        elif report.skipped:
            self.results[report.nodeid] = "skipped"
        elif hasattr(report, "wasxfail"):
            self.results[report.nodeid] = "xpassed"
        elif report.passed and report.when == "call":
            self._called.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid in self._called and known is None:
            self.results[report.nodeid] = "passed"


def main() -> None:
    """Run the tests."""
    output = os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # what judged code prints is its own affair
        os.dup2(quiet, descriptor)
    sys.stdin, sys.stdout = (io.TextIOWrapper(io.FileIO(n, mode)) for n, mode in enumerate("rw"))
    reporter = Reporter()
    options = ["-q", "--rootdir", os.getcwd(), "--maxfail=0", "--continue-on-collection-errors"]
    pytest.main([*options, *sys.argv[1:]], plugins=[reporter])
    body = _dumps({"results": list(reporter.results.items())}).encode()
    while body:
        body = body[os.write(output, body) :]
    os._exit(0)  # what judged code has registered for the end is not waited for


if __name__ == "__main__":
    main()
