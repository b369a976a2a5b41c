"""Promises of a command line that is typed in one directory and runs in another."""

import sys
from pathlib import Path

import pytest

from agent_layer.errors import BadInputError
from envs.commands.options import as_arguments, make_command_options
from envs.commands.plan import CommandOptions
from envs.commands.words import find_words

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
    "share_workdir": False,
    "keep_workdir": None,
    "artifacts": ["out/**", "*.log"],
    "diff": "changes.patch",
    "box": "session",
    "box_memory": 1024,
    "mounts": ["/opt/node"],
}
NOTHING = dict.fromkeys(GIVEN) | {"share_workdir": False, "box_memory": 4096}


def test_options_reach_a_worker_process_unchanged():
    options = make_command_options(**GIVEN)

    read = {name: value for name, _, value in (one.partition("=") for one in as_arguments(options))}

    assert read == {
        "--workdir": "template@HEAD",
        "--home": "home",
        "--diff": "changes.patch",
        "--box": "session",
        "--box-memory": "1024",
        "--artifact": "*.log",
        "--mount": "/opt/node",
    }
    assert options.box.resources.memory_mb == 1024
    assert make_command_options(**NOTHING) == CommandOptions()
    assert as_arguments(make_command_options(**NOTHING | {"share_workdir": True})) == ["--share-workdir"]
    assert as_arguments(make_command_options(**NOTHING | {"keep_workdir": "kept"})) == ["--keep-workdir=kept"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"share_workdir": True, "workdir": "x"}, "--workdir is for attempts with directories of their own"),
        ({"mounts": ["/opt"]}, "expected --box KIND beside --mount"),
        ({"box_memory": 1024}, "expected --box KIND beside --box-memory"),
        ({"box": "session", "keep_workdir": "kept"}, "expected --keep-workdir without --box"),
        ({"box": "process"}, "expected --box as one of"),
        ({"box": "session", "mounts": ["/usr/lib"]}, "outside of the sandbox's own folders"),
        ({"box": "session", "mounts": ["opt"]}, "expected a mount as an absolute path"),
        ({"box": "session", "mounts": ["/attempt/x"]}, "outside of the sandbox's own folders"),
        ({"diff": "out/changes"}, "expected --diff as the name of a file"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, why):
    with pytest.raises(BadInputError, match=why):
        make_command_options(**NOTHING | given)
