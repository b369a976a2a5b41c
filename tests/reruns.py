"""What a whole test run says at its end, and which failures are tried again.

A test that failed because a wait expired (``WaitExpired``), or because a server did not start in time, may have failed
by the machine's fault. It runs again: after all others, alone, once, with the same seed. If it passes then, it is
*flaky*, and its name is printed. Everything else is red at once: an assertion, an error of the code, a leak, a hang.
So is any failure of a property, a soak, or a test that kills: there, a wait that expires is the finding.

The last line is ``N passed, N failed, N skipped``. Reports of failures, and their seeds, lie in ``build/failures``.
Where TEST_TALLY names a file, the results are appended to it: ``.ci/run`` adds up its parts.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .waiting import WaitExpired

__all__ = ["Reruns", "Tally", "has_expired", "is_rerun_allowed"]

ROOT = Path(__file__).parents[1]
FAILURES = ROOT / "build" / "failures"
_LIMIT_SECONDS = 1800
_FINAL_FOLDERS = ("tests/soak/", "tests/integration/faults/")
_FINAL_WORDS = re.compile(r"kill|leftover|leak")
_FORWARDED = ("--servers", "--hypothesis-profile")


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one run of pytest."""

    passed: int
    failed: int
    skipped: int
    flaky: tuple[str, ...]
    reds: tuple[str, ...]
    seconds: float
    folders: dict[str, tuple[int, float]]
    """By folder: number of tests, and seconds that they took in all processes together."""
    slowest: list[tuple[float, str]]
    """Seconds of the slowest tests with their fixtures, slowest first."""

    @property
    def line(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


class Reruns:
    """Plugin of every test process; only the one that prints the reports runs anything again."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._began = time.monotonic()
        self._failed: dict[str, list[pytest.TestReport]] = {}
        self._outcomes: dict[str, str] = {}
        self._seconds: Counter[str] = Counter()
        self._flaky: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Mark reports of failures that may be the machine's fault."""
        report = yield
        if report.failed and call.excinfo and has_expired(call.excinfo.value, call.when) and is_rerun_allowed(item):
            report.__dict__["has_expired"] = True  # travels from worker to controller with the report
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take a report into the books."""
        name = report.nodeid
        self._seconds[name] += report.duration
        if report.failed:
            self._failed.setdefault(name, []).append(report)
            self._outcomes[name] = "failed"
            self._keep(report)
        elif report.when == "call" or report.skipped:
            self._outcomes.setdefault(name, report.outcome)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Run again what may; by now other processes and all fixtures have ended."""
        if self._is_worker or self._config.getoption("no_rerun"):
            return
        for name, reports in list(self._failed.items()):
            if all(getattr(report, "has_expired", False) for report in reports) and self._passes_alone(
                name, reports[0]
            ):
                self._flaky.append(name)
                self._outcomes[name] = "passed"
                del self._failed[name]
                self._forget(reports)
                session.testsfailed -= len(reports)
        if self._flaky and not self._failed and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Print the last lines."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if self._is_worker or reporter is None or self._config.option.collectonly:
            return
        tally = self._count()
        for name in tally.flaky:
            reporter.write_line(f"flaky: {name}")
        reporter.write_line(tally.line)
        if path := os.environ.get("TEST_TALLY"):
            with Path(path).open("ab") as file:
                file.write(msgspec.json.encode(tally) + b"\n")

    def _passes_alone(self, name: str, report: pytest.TestReport) -> bool:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        reply = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
        reporter.write_line(f"a wait expired, running again, alone: {name}\n{reply}")
        command = [sys.executable, "-m", "pytest", name, "-m", "", "--no-rerun", "-p", "no:xdist", "-q"]
        command += [f"--randomly-seed={self._config.getoption('randomly_seed')}"]
        command += [f"{option}={value}" for option in _FORWARDED if (value := self._config.getoption(option, None))]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("PYTEST_ADDOPTS", "TEST_TALLY")
        }
        try:
            again = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False
        has_passed = not again.returncode and "1 passed, 0 failed, 0 skipped" in again.stdout  # a skip shows nothing
        if not has_passed:
            reporter.write_line(again.stdout[-8000:] + again.stderr[-2000:])
        return has_passed

    def _forget(self, reports: list[pytest.TestReport]) -> None:
        """Take reports of a flaky test out of what the terminal calls failed."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        for kind in ("failed", "error"):
            reporter.stats[kind] = [one for one in reporter.stats.get(kind, []) if one not in reports]

    def _keep(self, report: pytest.TestReport) -> None:
        if self._is_worker:
            return
        FAILURES.mkdir(parents=True, exist_ok=True)
        sections = "".join(f"\n--- {title} ---\n{text}" for title, text in report.sections)
        seed = self._config.getoption("randomly_seed", None)
        head = f"{report.nodeid} ({report.when}), --randomly-seed={seed}, load {os.getloadavg()}\n\n"
        name = re.sub(r"[^\w.-]+", "-", report.nodeid)[-150:]
        (FAILURES / f"{name}-{report.when}.txt").write_text(head + report.longreprtext + sections)

    def _count(self) -> Tally:
        counts, folders = Counter(self._outcomes.values()), dict[str, tuple[int, float]]()
        for name, seconds in self._seconds.items():
            folder = str(Path(name.partition("::")[0]).parent)
            num_tests, sum_seconds = folders.get(folder, (0, 0.0))
            folders[folder] = num_tests + 1, sum_seconds + seconds
        return Tally(
            passed=counts["passed"],
            failed=counts["failed"],
            skipped=counts["skipped"],
            flaky=tuple(self._flaky),
            reds=tuple(self._failed),
            seconds=time.monotonic() - self._began,
            folders=folders,
            slowest=[(seconds, name) for name, seconds in self._seconds.most_common(10)],
        )


def has_expired(error: BaseException, when: str) -> bool:
    """Whether a wait of the test expired, or a server that a fixture started was not ready in time."""
    if isinstance(error, WaitExpired):
        return True
    return when == "setup" and isinstance(error.__cause__, TimeoutError)


def is_rerun_allowed(item: pytest.Item) -> bool:
    """Whether an expired wait of this test may be the machine's fault; in others it is what the test looks for."""
    is_property = hasattr(getattr(item, "obj", None), "hypothesis")
    return not (is_property or item.nodeid.startswith(_FINAL_FOLDERS) or _FINAL_WORDS.search(item.nodeid))
