"""The table of commands: it is correct, and no command is imported before it is called."""

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint

import pytest
import typer
from typer.testing import CliRunner

from agent_layer.cli import main
from agent_layer.cli.commands import PANELS, Command
from agent_layer.cli.loader import load_command
from agent_layer.health.checks import CHECKS

OURS = [command for commands in PANELS.values() for command in commands]


def _walk(commands: Sequence[Command]) -> Iterator[Command]:
    for command in commands:
        yield command
        yield from _walk(command.parts)


def _declared(name: str) -> Command:
    return next(command for command in OURS if command.name == name)


@pytest.mark.parametrize("command", [one for one in _walk(OURS) if one.target], ids=lambda one: one.target)
def test_a_summary_is_the_first_paragraph_of_the_docstring(command):
    loaded = load_command(command)

    assert loaded.help.partition("\n\n")[0] == command.summary
    assert loaded.name == command.name


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_no_command_and_nothing_that_is_slow(argument):
    program = f"""
import sys
from agent_layer.cli.main import main
sys.argv = ["agent-layer", {argument!r}]
try:
    main()
except SystemExit as ended:
    assert not ended.code
modules = {sorted({one.target.partition(":")[0] for one in _walk(OURS) if one.target})!r}
slow = ["pydantic_settings", "redis", "boto3", "aiohttp", "msgspec", "markdown_it", "torch"]
print([name for name in [*modules, *slow] if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"


def test_a_command_imports_none_of_the_others():
    program = (
        "import sys; from agent_layer.cli.commands import PANELS; from agent_layer.cli.loader import load_command;"
        "load_command(PANELS['Ask and judge'][0]); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert "agent_layer.cli.query.query" in loaded
    others = ("agent_layer.cli.queue", "agent_layer.cli.services", "agent_layer.cli.store", "envs", "trainer_adapter")
    assert [name for name in loaded if name.startswith(others)] == []


@pytest.fixture
def plugin(monkeypatch):
    """``plugin("module:name")``: the application with the command 'hello' of another package."""

    def install(target: str) -> typer.Typer:
        point = EntryPoint("hello", target, "agent_layer.commands")
        monkeypatch.setattr(main, "entry_points", lambda group: [point] if group == point.group else [])
        return main.build()

    return install


def hello(context: typer.Context, name: str) -> None:
    """Greet."""
    typer.echo(f"hello {name}, from {inspect.unwrap(hello).__name__} in {context.obj.namespace}")


def test_a_plug_in_is_a_command_like_ours(plugin, monkeypatch):
    monkeypatch.setitem(sys.modules, "someone_elses_package", sys.modules[__name__])
    app = plugin("someone_elses_package:hello")

    assert "hello bob, from hello in default" in CliRunner().invoke(app, ["hello", "bob"]).output
    assert "Greet." in CliRunner().invoke(app, ["hello", "--help"]).output


def test_help_names_a_plug_in_without_loading_it(plugin):
    message = CliRunner().invoke(plugin("package_that_is_not_there:hello"), ["--help"]).output

    assert "hello" in message.partition("More")[2]


def test_a_command_that_needs_an_extra_names_the_package(plugin):
    ended = CliRunner().invoke(plugin("package_that_is_not_there:hello"), ["hello"])

    assert "hello: needs the package 'package_that_is_not_there'" in str(ended.exception)


@pytest.mark.parametrize(
    ("command", "package"),
    [("work", "envs"), ("work", "tracer"), ("trace", "tracer"), ("train", "envs"), ("train", "trainer_adapter")],
)
@pytest.mark.parametrize("is_package", [True, False], ids=["with __init__", "without"])
def test_a_folder_that_shadows_our_package_is_named(tmp_path, command, package, is_package):
    folder = tmp_path / package
    folder.mkdir()
    if is_package:
        (folder / "__init__.py").touch()
    arguments = [sys.executable, "-m", "agent_layer.cli", command, "anything"]  # -m puts this directory first

    ended = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"agent-layer: {command}: the folder {folder} shadows our package {package!r}")
    assert ended.stderr.count("\n") == 1


def test_an_unknown_command_suggests_the_nearest():
    ended = CliRunner().invoke(main.build(), ["qeury"])

    assert ended.exit_code == 2
    assert "query" in ended.output


def test_a_group_without_a_command_prints_its_own_help():
    assert "parquet" in CliRunner().invoke(main.build(), ["store", "export"]).output


@pytest.mark.parametrize("command", [("health", "--catalogue"), ("alerts", "list")])
def test_each_check_is_a_line_of_json(command, tmp_path):
    ended = CliRunner().invoke(main.build(), ["--dir", str(tmp_path), *command, "--format", "jsonl"])

    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    known = {one.name: (one.warn, one.stop, one.steps) for one in CHECKS}
    assert "null_rewards" in {one["name"] for one in lines}
    assert [one for one in lines if known[one["name"]] != (one["warn"], one["stop"], one["steps"])] == []
