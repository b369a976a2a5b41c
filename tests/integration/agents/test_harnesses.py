"""Coding agents as they ship, and a small one of our own, through the fixed script of ``harnesses check``."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from agent_layer.infra.processes.marked import list_marked
from agent_layer.settings import Settings
from envs.commands import CommandFlags
from envs.harnesses import Harness, Installation, SideCall, ToolShape, find_harness
from trainer_adapter.qualification.check import check_harness
from trainer_adapter.qualification.drift import find_drift

from ...boxes import require_kind

PROGRAM = Path(__file__).parent / "programs" / "small_agent.py"
SMALL = Harness(
    name="small",
    package="small",
    version="1",
    installer="pypi",
    program="small",
    dialect="chat",
    arguments=["begin", "$prompt"],
    resume_arguments=["resume", "$prompt"],
    environment={
        "OPENAI_BASE_URL": "$base_url",
        "OPENAI_API_KEY": "$api_key",
        "MODEL": "$model",
        "CONTEXT": "$context_tokens",
    },
    side_calls=[SideCall(what="title", mark="header", pattern="Write a title")],
    shell=ToolShape(name="shell", arguments={"command": "$command"}),
    sub_agent=ToolShape(name="delegate", arguments={"prompt": "$prompt"}),
    names_agents=True,
    compaction="Summarise all of it",
    compact_tokens=8000,
)


@pytest.fixture
def small(tmp_path):
    """Settings and declaration of the small agent, installed where sandboxes can show it."""
    with TemporaryDirectory(prefix="agent-layer-test-", dir="/var/tmp") as place:
        yield install_small(tmp_path, Path(place))


def install_small(tmp_path, place):
    environment = SMALL.environment | {"DIRECTORY_OF_TEST": str(tmp_path)}
    harness = msgspec.structs.replace(SMALL, lock=tmp_path / "lock", environment=environment)
    harness.lock_folder.mkdir(exist_ok=True)
    (harness.lock_folder / "requirements.txt").write_text("")
    settings = Settings(dir=place)
    installation = Installation(settings, harness)
    installation.program.parent.mkdir(parents=True, exist_ok=True)
    installation.program.write_text(f"#!/usr/bin/python3 -I\n{PROGRAM.read_text()}")
    installation.program.chmod(0o700)
    marker = {"version": "1", "lock_hash": installation._hash_lock(), "interpreter": "Python"}
    (installation.folder / "installed.json").write_bytes(msgspec.json.encode(marker))
    return settings, harness


@pytest.mark.parametrize("box", ["none", pytest.param("auto", marks=pytest.mark.long)])
def test_an_agent_loses_only_side_calls_and_what_was_cut_and_drifts_by_nothing(small, box):
    settings, harness = small
    if box == "auto":
        require_kind("session", "oci", "docker", "namespace")

    result = check_harness(settings, harness, print, options=CommandFlags(box=box).read(is_harness=True))

    assert [part.fault for part in result.parts] == [None] * 6
    assert result.is_clean
    for part in result.parts:
        assert part.num_calls == part.num_steps
        assert part.sampled == part.trained + sum(part.lost.values())
        assert part.lost["aux"] > 0
        assert (part.lost.keys() == {"aux", "cut_stream"}) == (part.name == "cut and resume")
    by_name = {part.name: part for part in result.parts}
    assert [by_name[name].num_rows for name in ("tools", "sub-agent", "two sub-agents", "retry")] == [1, 2, 3, 1]
    assert [by_name[name].num_agents for name in ("tools", "sub-agent", "two sub-agents", "retry")] == [0, 1, 2, 0]
    assert by_name["forty turns"].forks.keys() == {"compaction"}
    assert list(find_drift(result, result)) == []
    assert (result.box == "none") == (box == "none")
    assert list_marked("DIRECTORY_OF_TEST", harness.environment["DIRECTORY_OF_TEST"]) == []


def find_agent(name):
    """Settings and declaration of an agent as it ships, where 'make' could install it."""
    harness, settings = find_harness(name), Settings(dir=Path(sys.prefix))
    if fault := Installation(settings, harness).find_fault():
        pytest.skip(f"{name} {fault}; 'make test' installs it in .venv where its registry can be reached")
    return settings, harness


@pytest.mark.parametrize("name", ["pi", "codex", "mini-swe-agent"])
def test_a_light_agent_as_it_ships_is_trained_whole(name):
    settings, harness = find_agent(name)

    # without a box, because none can show an installation of a clone below /tmp
    unboxed = CommandFlags(box="none").read(is_harness=True)
    (tools,) = check_harness(settings, harness, print, only="tools", options=unboxed).parts

    assert (tools.fault, tools.findings) == (None, [])
    assert tools.num_calls == tools.num_steps > 1
    assert tools.sampled == tools.trained + tools.lost.get("aux", 0)
    assert tools.trained > 0


@pytest.mark.long
@pytest.mark.parametrize("name", ["pi", "codex", "mini-swe-agent", "aider", "claude-code", "gemini"])
def test_a_coding_agent_as_it_ships_loses_no_token_of_the_policy(name, monkeypatch):
    """'make test-all' installs these, and the vocabulary and chat templates that count their lengths."""
    settings, harness = find_agent(name)
    monkeypatch.syspath_prepend(Path(sys.prefix) / "templates")

    result = check_harness(settings, harness, print)

    assert [(part.fault, part.findings) for part in result.parts] == [(None, [])] * len(result.parts)
    assert result.is_clean
    for part in result.parts:
        assert part.num_calls == part.num_steps
        assert part.sampled == part.trained + sum(part.lost.values())
    assert [one.template for one in result.rendered] == ["qwen3", "glm4moe", "gptoss"]
    assert all(one.first_request > 100 for one in result.rendered)
