"""Promises of ``--help``: commands in chapters, lines that fill the terminal, examples."""

import sys

import msgspec
import pytest
from typer.testing import CliRunner

from agent_layer.cli.main import build, main
from agent_layer.dispatcher import tasks


@pytest.fixture
def read_help():
    """``read_help("runs", "share")``: the command's help text at 80 columns."""

    def run(*command: str) -> str:
        done = CliRunner().invoke(build(), [*command, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
        assert done.exit_code == 0
        return done.output

    return run


def test_every_command_stands_in_a_chapter(read_help):
    message = read_help()

    chapters = [line for line in message.splitlines() if line.startswith("╭─")]
    assert [line.strip("╭─╮ ") for line in chapters] == [
        *("Options", "Run agents", "Watch and steer", "Ask and judge", "Train", "Look after the machines"),
    ]


def test_paragraphs_do_not_keep_the_line_ends_of_the_source(read_help):
    paragraph = read_help("rollouts").partition("A claimed rollout is")[2].partition("╭")[0]

    assert min(len(line) for line in paragraph.strip().splitlines()[1:-1]) > 60


@pytest.mark.parametrize(
    ("command", "example"),
    [
        (("submit",), "agent-layer submit TASKS.jsonl --run nightly --group-size 8 --wait"),
        (("work",), "agent-layer work --slots 4 -- python agent.py"),
        (("dead",), "agent-layer dead retry --run nightly"),
        (("runs", "share"), "agent-layer runs share nightly --weight 2 --quota 64"),
        (("groups", "cancel"), "agent-layer groups cancel --run nightly"),
    ],
)
def test_an_example_stands_below_the_options_in_one_line(read_help, command, example):
    above, _, below = read_help(*command).rpartition("╯")

    assert example in [line.strip() for line in below.splitlines()]
    assert example not in above


def test_help_of_submit_names_every_field_of_a_task(read_help):
    message = read_help("submit").partition("Further fields:")[2].partition("╭")[0]

    line = tasks._TaskLine  # what a person types has no other list
    named = {name.strip(" .\n") for name in message.replace(" and ", ",").replace("\n", " ").split(",")}
    assert named | {"input", "grading"} == {field.name for field in msgspec.structs.fields(line)}


def test_a_field_that_no_task_has_is_named_with_where_the_others_stand(tmp_path, monkeypatch, capsys):
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task_id": "a", "input": 1}\n')
    monkeypatch.setattr(sys, "argv", ["agent-layer", "submit", str(path)])

    with pytest.raises(SystemExit):
        main()
    message = capsys.readouterr().err
    assert "unknown field `task_id`" in message
    assert "'agent-layer submit -h'" in message
