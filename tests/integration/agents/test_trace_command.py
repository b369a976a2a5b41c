"""``agent-layer trace`` captures programs without touching them, with a gateway and without one."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_layer.store import open_store

from ...waiting import communicate, read_line, run

SCRIPT = """
import openai, sys
client = openai.OpenAI()
answer = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": sys.argv[1]}])
print(answer.choices[0].message.content)
"""
FAMILY = """
import multiprocessing, subprocess, sys, threading

def ask(text):
    import openai
    messages = [{"role": "user", "content": text}]
    return openai.OpenAI().chat.completions.create(model="scripted", messages=messages).choices[0].message.content

if __name__ == "__main__":
    print(ask(sys.argv[1]), flush=True)
    thread = threading.Thread(target=ask, args=("thread",)); thread.start(); thread.join()
    child = multiprocessing.get_context("spawn").Process(target=ask, args=("spawned",)); child.start(); child.join()
    child = multiprocessing.get_context("fork").Process(target=ask, args=("forked",)); child.start(); child.join()
    subprocess.run([sys.executable, "agent.py", "subprocess"], check=True)
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "agent.py").write_text(SCRIPT)
    (tmp_path / "family.py").write_text(FAMILY)
    return tmp_path


def read_command(settings, *words):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    command = [sys.executable, "-m", "agent_layer.cli", "trace", *words]
    return command, clean | settings.environment()


def trace(settings, *words, directory, **variables):
    command, environment = read_command(settings, *words)
    return run(command, 200, cwd=directory, env=environment | variables)


def make_trajectory(settings, traced):
    named = traced.stderr.strip().splitlines()[-1].rpartition(" ")[2]
    return open_store(settings).get(named)


def read_texts(trajectory):
    return [json.loads(trajectory.contents[step.state.messages[0]])["content"] for step in trajectory.steps]


def test_with_a_gateway_threads_and_processes_of_every_kind_are_captured_to_the_token(gateway, engine, home):
    words = ["--task", "sum", "--task-type", "math", "--", sys.executable, "family.py", "--hello"]

    traced = trace(gateway, *words, directory=home)

    assert (traced.returncode, traced.stdout) == (0, "it is --hello\nit is subprocess\n"), traced.stderr
    trajectory = make_trajectory(gateway, traced)
    assert (trajectory.started.task_id, trajectory.started.task_type) == ("sum", "math")
    assert trajectory.outcome.status == "completed"
    assert read_texts(trajectory) == ["--hello", "thread", "spawned", "forked", "subprocess"]
    for step, seen in zip(trajectory.steps, engine.calls, strict=True):
        assert (step.capture_level, step.prompt_token_ids.tolist()) == ("tokens", seen.prompt_token_ids)
        assert step.span_id is not None
        assert "x-agent-layer-call" not in seen.headers


def test_without_a_gateway_the_program_keeps_its_model_and_is_captured_as_text(settings, engine, home):
    traced = trace(
        settings,
        "--",
        sys.executable,
        "agent.py",
        "hello",
        directory=home,
        OPENAI_BASE_URL=f"{engine.url}/v1",
        OPENAI_API_KEY="own",
    )

    assert traced.returncode == 0, traced.stderr
    trajectory = make_trajectory(settings, traced)
    assert (trajectory.started.task_id, trajectory.outcome.status) == ("agent", "completed")
    assert [(step.capture_level, step.status) for step in trajectory.steps] == [("text", "ok")]
    assert read_texts(trajectory) == ["hello"]


def test_a_program_that_is_no_python_finds_its_model_in_the_environment_and_no_key_of_the_operator(
    gateway, engine, home
):
    script = (
        'env; curl -sf "$OPENAI_BASE_URL/chat/completions" -H "Authorization: Bearer $OPENAI_API_KEY"'
        ' -d \'{"model": "any", "messages": [{"role": "user", "content": "curl"}]}\'; exit 3'
    )

    traced = trace(gateway, "--", "sh", "-c", script, directory=home)

    assert traced.returncode == 3
    trajectory = make_trajectory(gateway, traced)
    assert (trajectory.outcome.status, trajectory.reward, len(trajectory.steps)) == ("failed", None, 1)
    assert len(engine.calls) == 1
    variables = dict(line.split("=", 1) for line in traced.stdout.splitlines() if "=" in line)
    assert gateway.api_key not in variables.values()
    assert variables["OPENAI_BASE_URL"].startswith(f"{gateway.gateway_url}/r/")
    assert variables["ANTHROPIC_BASE_URL"] + "/v1" == variables["OPENAI_BASE_URL"]
    assert "AGENT_LAYER_GATEWAY_URL" not in variables


@contextmanager
def tracing_of_a_sleep(settings, home):
    command, environment = read_command(settings, "--", "sh", "-c", "echo ready; exec sleep 60")
    with subprocess.Popen(
        command, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tracing:
        try:
            assert read_line(tracing) == "ready\n"
            yield tracing
        finally:
            tracing.kill()


def test_signals_reach_the_program_and_its_status_comes_back(settings, home):
    with tracing_of_a_sleep(settings, home) as tracing:
        tracing.send_signal(signal.SIGTERM)
        _, errors = communicate(tracing)

    assert tracing.returncode == 128 + signal.SIGTERM
    named = errors.strip().rpartition(" ")[2]
    assert open_store(settings).get(named).outcome.status == "failed"


def test_a_signal_that_does_not_interrupt_the_wait_reaches_the_program_too(settings, home):
    """As one that comes just before the wait: here another thread of the process takes it."""
    with tracing_of_a_sleep(settings, home) as tracing:
        threads = {int(thread.name) for thread in Path(f"/proc/{tracing.pid}/task").iterdir()} - {tracing.pid}
        assert ctypes.CDLL(None).tgkill(tracing.pid, min(threads), signal.SIGTERM) == 0
        communicate(tracing)

    assert tracing.returncode == 128 + signal.SIGTERM


def test_a_program_that_is_not_there_is_one_sentence(agent_layer):
    status, _, errors = agent_layer("trace", "--", "no-such-program")

    assert (status, errors.count("\n")) == (2, 1)
    assert "no-such-program" in errors


def test_a_program_that_cannot_be_started_is_one_sentence(settings, home):
    program = home / "program"
    program.write_text("echo no first line that names an interpreter\n")
    program.chmod(0o700)

    traced = trace(settings, "--", "./program", directory=home)

    assert (traced.returncode, traced.stderr.count("\n")) == (2, 1), traced.stderr
    assert "first line names its interpreter" in traced.stderr
