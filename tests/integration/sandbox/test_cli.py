"""``agent-layer sandbox``: output and exit status are those of the code, and errors are one sentence."""

import asyncio
import io
import os
import sys

import pytest

from agent_layer.cli.main import main
from envs.sandbox.registry import list_kind_names, make_kind

from ...boxes import end_without
from ...waiting import run

pytestmark = pytest.mark.usefixtures("namespace")


@pytest.fixture(scope="module")
def namespace():
    async def probe():
        kind = make_kind("namespace")
        try:
            return await kind.probe()
        finally:
            await kind.close()

    if not (support := asyncio.run(probe())).works:
        end_without(support.reason, "namespace")


@pytest.fixture
def run_cli(monkeypatch, capfd):
    """``run_cli("sandbox", "doctor", stdin=b"")``: (exit status, stdout, stderr) of a command in this process."""

    def run_cli(*arguments, stdin=b""):
        monkeypatch.setattr(sys, "argv", ["agent-layer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code, *capfd.readouterr())

    return run_cli


def test_a_process_has_the_output_and_status_of_its_command():
    ran = run([sys.executable, "-m", "agent_layer.cli", "sandbox", "exec", "--", "sh", "-c", "echo err >&2; exit 3"])

    assert (ran.returncode, ran.stdout, ran.stderr) == (3, "", "err\n")


def test_a_command_has_its_own_output_and_status(run_cli):
    ran = run_cli("sandbox", "exec", "--", "sh", "-c", "cat; echo err >&2; exit 3", stdin=b"typed")

    assert ran == (3, "typed", "err\n")


def test_a_file_has_its_own_output_and_status(run_cli, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "canary")
    file = tmp_path / "program.py"
    file.write_text("import os, sys; print(sys.argv[1:], os.getcwd(), 'SECRET' in os.environ); sys.exit(4)")

    ran = run_cli("sandbox", "run", file, "--seconds", "20", "--", "--seconds", "x")

    assert ran == (4, "['--seconds', 'x'] /work False\n", "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["exec", "--seconds", "0.2", "--", "sleep", "600"], 1, "sleep did not end within 0.2 s, and was killed"),
        (["exec", "--", "sh", "-c", "kill -9 $$"], 1, "sh was killed by SIGKILL"),
        (["exec", "--kind", "dockr", "--", "true"], 2, "expected one of process, namespace"),
        (["run", "/no/such/file.py"], 2, "No such file or directory; name a Python file"),
        (["run", "x.py", "--seconds", "inf"], 2, "expected --seconds to be a number of seconds, found inf"),
    ],
)
def test_what_goes_wrong_is_one_sentence(run_cli, arguments, code, words):
    status, _, error = run_cli("sandbox", *arguments)

    assert status == code
    assert words in error
    assert len(error.splitlines()) == 1


def test_the_trusted_kind_is_used_only_when_it_is_named(run_cli):
    assert run_cli("sandbox", "exec", "--", "id", "-u")[1] == "1000\n"
    assert run_cli("sandbox", "exec", "--kind", "process", "--", "id", "-u")[1] == f"{os.getuid()}\n"


def test_the_doctor_reports_every_kind_and_what_it_stops(run_cli):
    status, report, _ = run_cli("sandbox", "doctor")

    text = " ".join(report.split())
    assert status == 0
    assert text.count("Does not stop:") == text.count("Stops:") == len(list_kind_names())
    assert all(len(line.split()) > 2 for line in report.splitlines() if line.startswith(("ok", "no")))


def test_the_doctor_of_the_machine_has_a_line(run_cli, tmp_path):
    _, report, _ = run_cli("--dir", tmp_path, "doctor")

    (line,) = [line for line in report.splitlines() if line.split()[1] == "sandbox"]
    assert line.startswith("ok ")
    assert "namespace" in line
