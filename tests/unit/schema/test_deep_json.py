"""JSON from outside that is nested 100,000 deep: a sentence, or what the reader makes of no JSON; never a traceback."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_layer.conformance.adapters import load_adapter
from agent_layer.conformance.session import _decode
from agent_layer.dispatcher import read_tasks
from agent_layer.engines.control import _as_object
from agent_layer.engines.fingerprints import read_fingerprints
from agent_layer.errors import AgentLayerError
from agent_layer.gateway.calls.spending import read_cost_limit
from agent_layer.gateway.engines.models import read_model_names
from agent_layer.gateway.rollouts.callers import read_side_calls
from agent_layer.recorder.redaction import redact_record
from agent_layer.schema import Content
from envs.commands.plan import CommandEnd, read_last_line
from envs.costs.prices import read_prices
from tracer.transport.gateway_client import _error_message
from trainer_adapter.config import load_config
from trainer_adapter.foreign.openenv import read_rows
from trainer_adapter.start.memory import read_shape

LISTS = "[" * 100_000 + "]" * 100_000
OBJECTS = '{"a":' * 100_000 + "1" + "}" * 100_000
INSIDE = f'{{"a": {LISTS}}}'
DEEP = pytest.mark.parametrize("text", [LISTS, OBJECTS, INSIDE], ids=["lists", "objects", "inside"])


@DEEP
@pytest.mark.parametrize(
    "read",
    [
        lambda text: read_model_names(" {" + text),
        read_side_calls,
        read_cost_limit,
        lambda text: read_prices("{" + text),
        lambda text: read_rows(text.encode()),
    ],
    ids=["models", "side calls", "cost limit", "prices", "trace"],
)
def test_a_setting_or_trace_is_refused_with_a_sentence(read: Callable[[str], object], text: str):
    with pytest.raises(AgentLayerError, match="expected"):
        read(text)


@DEEP
@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("tasks.jsonl", lambda path: read_tasks(path, run="r")),
        ("config.json", lambda path: read_shape(path.parent)),
        ("run.json", load_config),
        ("run.yaml", load_config),
        ("records.jsonl", lambda path: [*load_adapter(str(path), "http://127.0.0.1:9", "key").read_records()]),
    ],
    ids=["tasks", "model", "configuration", "YAML", "records"],
)
def test_a_file_is_refused_with_a_sentence(tmp_path: Path, name: str, read: Callable[[Path], object], text: str):
    (tmp_path / name).write_text(text)

    with pytest.raises(AgentLayerError):
        read(tmp_path / name)


@pytest.mark.parametrize("text", ["- " * 20_000 + "1", "a: &a [*a]", f"a: {LISTS}"], ids=["steps", "loop", "lists"])
def test_yaml_ends_no_process(tmp_path: Path, text: str):
    (tmp_path / "run.yaml").write_text(text)
    program = "import sys; from pathlib import Path; from trainer_adapter.config import load_config\n"

    done = subprocess.run(
        [sys.executable, "-c", f"{program}load_config(Path(sys.argv[1]))", tmp_path / "run.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr.splitlines()[-1].partition(": ")[0]) == (1, "agent_layer.errors.BadInputError")


@DEEP
def test_what_may_be_no_json_is_read_as_such(tmp_path: Path, text: str):
    (tmp_path / "config.json").write_text(text)

    assert _as_object(text.encode()) == {}
    assert _decode(text) is None
    assert _error_message(text.encode()) == text[:500]
    assert read_fingerprints(str(tmp_path)).template_hash is None
    end = CommandEnd(name="c", exit_code=0, stdout=f"before\n{text}", stderr="")
    assert read_last_line(end) == text
    content = Content(trajectory_id="t", hash="h", body=text.encode())
    assert redact_record(content, str.upper).body == text.encode()
