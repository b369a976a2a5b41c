"""Runs the tests of one file, with pytest where the box has it, and writes each one's result as JSON.

Runs in a box with Python 3.8 or newer, in the folder of the judged code; the only argument is the test file. The judged
code shares this process and can forge every result, but cannot know which tests have to fail: see ``hidden_tests.py``.

Output: ``{"results": [[name, "passed" | "failed" | "error"], ...]}``. A failed assertion is ``failed``, any other
exception an ``error``.
"""

from __future__ import annotations

import io
import json
import os
import sys

TYPE_CHECKING = False  # importing typing would cost each box milliseconds
if TYPE_CHECKING:
    from typing import Any

try:
    import pytest
except ImportError:
    pytest = None

_dumps = json.dumps  # before judged code is imported, which may replace it


def main() -> None:
    """Run the tests."""
    output = os.dup(1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # what judged code prints is its own affair
        os.dup2(quiet, descriptor)
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(n, mode)) for n, mode in enumerate("rww"))
    path = os.path.abspath(sys.argv[1])
    sys.path.insert(0, os.getcwd())
    results = _run_plainly(path) if pytest is None else _run_pytest(path)
    body = _dumps({"results": results}).encode()
    while body:
        body = body[os.write(output, body) :]
    os._exit(0)  # what judged code has registered for the end is not waited for


class _Reporter:
    """Plug-in of pytest that keeps one result per test."""

    def __init__(self) -> None:
        self.results: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the result of the test itself, or of what failed before it."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            crash = getattr(report.longrepr, "reprcrash", None)
            is_assertion = crash is not None and crash.message.startswith(("assert", "AssertionError"))
            failed = "failed" if is_assertion and report.failed else "error"
            self.results.append((report.nodeid.rpartition("::")[2], "passed" if report.passed else failed))


def _run_pytest(path: str) -> list[tuple[str, str]]:
    assert pytest is not None
    reporter = _Reporter()
    options = ["-q", "--noconftest", "--import-mode=importlib", "-c", os.devnull, "--rootdir", os.path.dirname(path)]
    pytest.main([*options, "-p", "no:cacheprovider", path], plugins=[reporter])
    return reporter.results


def _run_plainly(path: str) -> list[tuple[str, str]]:
    names: dict[str, Any] = {"__name__": "hidden_tests"}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), names)  # the tests are the scorer's own
    return [(name, _run_test(test)) for name, test in list(names.items()) if name.startswith("test_")]


def _run_test(test: Any) -> str:
    try:
        test()
    except AssertionError:
        return "failed"
    except BaseException:  # noqa: BLE001  # judged code raises anything, SystemExit included
        return "error"
    return "passed"


if __name__ == "__main__":
    main()
