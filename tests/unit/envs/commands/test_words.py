"""Promises of a command line that is typed in one directory and runs in another."""

import sys
from pathlib import Path

import pytest
import typer

from agent_layer.errors import BadInputError
from envs.commands.boxed import choose_box
from envs.commands.options import CommandFlags, as_arguments, make_box_spec, take_command_flags
from envs.commands.plan import CommandOptions
from envs.commands.target import CommandTarget
from envs.commands.words import find_words
from envs.sandbox import Support

WORDS = [
    # typed, what runs, with START for the start directory
    ("python agent.py", "python START/agent.py"),
    ("python ./agent.py", "python START/agent.py"),
    ("./run.sh --fast", "START/run.sh --fast"),
    ("node src/main.mjs src", "node START/src/main.mjs src"),
    (
        "python -u agent.py --config=conf.yaml --data src/",
        "python -u START/agent.py --config=START/conf.yaml --data START/src",
    ),
    ("aider main.py conf.yaml", "aider main.py START/conf.yaml"),
    ("npm test", "npm test"),
    ("tool . .. ../ ./", "tool . .. ../ ./"),
    ("python /abs/agent.py none.py", "python /abs/agent.py none.py"),
    ("x a=conf.yaml -c=none.yaml ''", "x a=conf.yaml -c=none.yaml ''"),
]


@pytest.fixture
def start(tmp_path):
    """A directory as programs are started in."""
    (tmp_path / "src").mkdir()
    for name in ("agent.py", "run.sh", "src/main.mjs", "conf.yaml", "main.py", "test", "package/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


@pytest.mark.parametrize(("typed", "runs"), WORDS)
def test_words_that_name_files_of_the_start_directory_still_do(start, typed, runs):
    found = find_words(typed.split(" "), start, lambda path: path == "main.py")

    assert " ".join(found.argv) == runs.replace("START", str(start))
    assert not found.needs_modules


@pytest.mark.parametrize(
    ("typed", "needs"),
    [
        ("python -m agent", True),
        ("python3.11 -I -m package.sub", False),
        ("/usr/bin/python3 -m package", True),
        ("python -m pytest", False),
        ("pip -m agent", False),
        ("python agent.py -m", False),
    ],
)
def test_a_module_of_the_start_directory_is_found(start, typed, needs):
    assert find_words(typed.split(), start, lambda _: False).needs_modules is needs


def test_a_word_longer_than_any_path_is_no_file(start):
    word = "x/" * 5000 + "."

    assert find_words(["sh", word, "a\0."], start, lambda _: False).argv == ["sh", word, "a\0."]


async def test_scripts_modules_and_the_start_directory_are_found_from_an_attempt(attempts):
    start = Path.cwd()
    (start / "agent.py").write_text("import beside, os; print(beside.NAME, os.listdir('.'))")
    (start / "beside.py").write_text("NAME = 'beside'")

    for command in (["agent.py"], ["-m", "agent"]):
        assert await attempts([sys.executable, *command]).run() == "beside []"
    by_hand = ["sh", "-c", f"{sys.executable} $AGENT_LAYER_START_DIR/agent.py"]
    assert await attempts(by_hand).run() == "beside []"


async def test_programs_that_are_installed_for_the_user_are_still_found(attempts, monkeypatch, tmp_path):
    monkeypatch.setattr("site.getuserbase", lambda: str(tmp_path))

    assert await attempts(["sh", "-c", "echo $PYTHONUSERBASE"]).run() == str(tmp_path)


GIVEN = {
    "workdir": "template@HEAD",
    "home": "home",
    "artifacts": ["out/**", "*.log"],
    "diff": "changes.patch",
    "env": ["GH_TOKEN"],
    "box": "session",
    "box_memory": 1024,
    "mounts": ["/opt/node"],
}


def parse(arguments):
    """Return what a command line with these arguments asks for, by the parser of commands."""
    found = []

    @take_command_flags
    def command(*, flags: CommandFlags):
        found.append(flags)

    app = typer.Typer()
    app.command()(command)
    app(arguments, standalone_mode=False)
    return found[0]


@pytest.mark.parametrize("is_harness", [False, True])
@pytest.mark.parametrize(
    "given",
    [
        {},
        GIVEN,
        {"keep_workdir": "kept", "box": "none"},
        {"box": "auto", "mounts": ["/opt/a", "/opt/b"]},
        {"box": "none"},
        {"share_workdir": True},
    ],
    ids=str,
)
def test_options_reach_a_worker_process_unchanged(given, is_harness):
    options = CommandFlags(**given).read(is_harness=is_harness)

    assert parse(as_arguments(options)).read(is_harness=is_harness) == options


def test_the_parser_reads_every_option():
    typed = ["--workdir=template@HEAD", "--home=home", "--artifact=out/**", "--artifact=*.log", "--diff=changes.patch"]
    typed += ["--env=GH_TOKEN", "--box=session", "--box-memory=1024", "--mount=/opt/node"]

    assert parse(typed) == CommandFlags(**GIVEN)
    assert parse([]) == CommandFlags()
    assert parse(["--harness=pi", "--share-workdir", "--keep-workdir=k"]) == CommandFlags(
        harness="pi", share_workdir=True, keep_workdir="k"
    )


@pytest.mark.parametrize(
    ("given", "of_command", "of_harness"),
    [(None, None, "auto"), ("none", None, None), ("auto", "auto", "auto"), ("oci", "oci", "oci")],
)
def test_a_harness_runs_in_a_box_unless_told_otherwise_and_a_command_only_if_told(given, of_command, of_harness):
    for is_harness, expected in ((False, of_command), (True, of_harness)):
        box = CommandFlags(box=given).read(is_harness=is_harness).box
        assert (None if box is None else box.kind or "auto") == expected


@pytest.mark.parametrize("is_harness", [False, True])
@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"share_workdir": True, "workdir": "x"}, "--workdir is for attempts with directories of their own"),
        ({"box": "none", "mounts": ["/opt"]}, "expected --box KIND beside --mount"),
        ({"box": "none", "box_memory": 1024}, "expected --box KIND beside --box-memory"),
        ({"box": "session", "keep_workdir": "kept"}, "expected --keep-workdir without a sandbox.*--box none"),
        ({"box": "process"}, "expected --box as one of auto, none, session, oci"),
        ({"box": "session", "mounts": ["/usr/lib"]}, "outside of the sandbox's own folders"),
        ({"box": "session", "mounts": ["opt"]}, "expected a mount as an absolute path"),
        ({"box": "session", "mounts": ["/attempt/x"]}, "outside of the sandbox's own folders"),
        ({"diff": "out/changes"}, "expected --diff as the name of a file"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, why, is_harness):
    with pytest.raises(BadInputError, match=why):
        CommandFlags(**given).read(is_harness=is_harness)


async def test_a_variable_reaches_attempts_by_name_and_one_that_cannot_is_refused(attempts, monkeypatch):
    for name in ("GH_TOKEN", "HF_TOKEN", "AGENT_LAYER_API_KEY"):
        monkeypatch.setenv(name, f"the {name}")
    shows = ["sh", "-c", "echo $GH_TOKEN, $HF_TOKEN"]

    assert await attempts(shows).run() == ","
    assert await attempts(shows, CommandOptions(env=["GH_TOKEN"])).run() == "the GH_TOKEN,"
    for name, why in (("NOT_SET", "it is not set here"), ("AGENT_LAYER_API_KEY", "it is the worker's own")):
        with pytest.raises(BadInputError, match=f"--env {name}: {why}"):
            CommandTarget(["true"], CommandOptions(env=[name]))


def test_a_machine_without_any_kind_of_sandbox_says_what_to_do(monkeypatch):
    working = set[str]()

    async def probe(kind):
        return Support(works=kind.name in working, reason="lacks it; install it")

    monkeypatch.setattr("envs.sandbox.host_side.kind.ServedKind.probe", probe)
    any_kind = CommandOptions(box=make_box_spec())

    with pytest.raises(BadInputError, match=r"session: lacks it.*oci: lacks.*Install what one.*--box none"):
        choose_box(any_kind)
    for name, best in (("namespace", "namespace"), ("docker", "docker"), ("process", "docker"), ("oci", "oci")):
        working.add(name)
        assert choose_box(any_kind).box.kind == best
    assert choose_box(CommandOptions()).box is None
