"""``agent-layer sandbox``: output and exit status are those of the code, and errors are one sentence."""

import os
import subprocess
import sys

import pytest

from .conftest import REQUIRED

pytestmark = pytest.mark.usefixtures("namespace")

CLI = [sys.executable, "-m", "agent_layer.cli"]


def run_cli(*arguments, stdin=b"", **variables):
    return subprocess.run(
        [*CLI, *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def namespace():
    report = run_cli("sandbox", "doctor").stdout.decode()
    if not any(line.split()[:2] == ["ok", "namespace"] for line in report.splitlines()):
        (pytest.fail if "namespace" in REQUIRED else pytest.skip)(report)


def test_a_command_has_its_own_output_and_status():
    ran = run_cli("sandbox", "exec", "--", "sh", "-c", "cat; echo err >&2; exit 3", stdin=b"typed")

    assert (ran.returncode, ran.stdout, ran.stderr) == (3, b"typed", b"err\n")


def test_a_file_has_its_own_output_and_status(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("import os, sys; print(sys.argv[1:], os.getcwd(), 'SECRET' in os.environ); sys.exit(4)")

    ran = run_cli("sandbox", "run", file, "--seconds", "20", "--", "--seconds", "x", SECRET="canary")

    assert (ran.returncode, ran.stdout) == (4, b"['--seconds', 'x'] /work False\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["exec", "--seconds", "0.2", "--", "sleep", "60"], 1, "sleep did not end within 0.2 s, and was killed"),
        (["exec", "--", "sh", "-c", "kill -9 $$"], 1, "sh was killed by SIGKILL"),
        (["exec", "--kind", "dockr", "--", "true"], 2, "expected a kind among process, namespace"),
        (["run", "/no/such/file.py"], 2, "No such file or directory; name a Python file"),
        (["run", "x.py", "--seconds", "inf"], 2, "expected --seconds to be a number of seconds, found inf"),
    ],
)
def test_what_goes_wrong_is_one_sentence(arguments, code, words):
    ran = run_cli("sandbox", *arguments)

    assert ran.returncode == code
    assert words in ran.stderr.decode()
    assert len(ran.stderr.splitlines()) == 1


def test_the_trusted_kind_is_used_only_when_it_is_named():
    assert run_cli("sandbox", "exec", "--", "id", "-u").stdout == b"1000\n"
    assert run_cli("sandbox", "exec", "--kind", "process", "--", "id", "-u").stdout.decode() == f"{os.getuid()}\n"


def test_the_doctor_reports_every_kind_and_what_it_stops():
    report = run_cli("sandbox", "doctor")

    assert report.returncode == 0
    assert report.stdout.count(b"Does not stop:") == report.stdout.count(b"Stops:") >= 2


def test_the_doctor_of_the_machine_has_a_line(tmp_path):
    report = run_cli("--dir", tmp_path, "doctor").stdout.decode()

    (line,) = [line for line in report.splitlines() if line.split()[1] == "sandbox"]
    assert line.startswith("ok ")
    assert "namespace" in line
