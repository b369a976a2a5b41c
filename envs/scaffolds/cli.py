"""Commands ``new env``, ``new taskset`` and ``new scorer``: a module that runs, and the test of its gate."""

import keyword
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from agent_layer.errors import BadInputError
from agent_layer.infra import replace_file

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the module to write, such as my_sums; lower case.")]

_TEST: Final = '''\
"""The gate of {name}: what is right scores 1, all else 0, and everything is the same twice."""

import subprocess
import sys
from pathlib import Path


def test_the_set_passes_its_gate(tmp_path):
    command = [sys.executable, "-m", "agent_layer.cli", "--dir", tmp_path, "tasksets", "check", "{taskset}"]

    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
'''


def new_env(name: Name) -> None:
    """Write an environment with tasks and a scorer, and its test.

    NAME.py has a class with reset, step, state and close, for several turns; a task set, whose right and wrong games
    the gate judges; and a scorer outside of the agent. It runs as it is. Replace the world, then the games.

        agent-layer new env maze
        agent-layer tasksets check maze:MazeTasks
        agent-layer eval maze:MazeTasks --model URL
    """
    _write("environment", name, tasks="Tasks")


def new_taskset(name: Name) -> None:
    """Write a task set with a scorer, and its test.

    NAME.py draws tasks with answers in text by seed, level and split, knows what must score 1 and what 0, and has a
    scorer. It runs as it is. Replace questions and answers; the gate then says what is missing before it may train.

        agent-layer new taskset my_sums
        agent-layer tasksets check my_sums:MySums
        agent-layer tasksets write my_sums:MySums tasks.jsonl --count 200
    """
    _write("taskset", name, tasks="")


def new_scorer(name: Name) -> None:
    """Write a scorer with tasks to try it on, and its test.

    NAME.py has a class with 'async def score(self, context)', which gives evidence, and a small task set that holds it
    to right, wrong and forged answers. It runs as it is. Tasks name it as "scorer": "NAME:Name".

        agent-layer new scorer facts
        agent-layer tasksets check facts:FactsTasks
    """
    _write("scorer", name, tasks="Tasks")


def _write(template: str, name: str, *, tasks: str) -> None:
    """Write the module and its test.

    Raises: BadInputError: the name is no module's, hides another module, or has a file already.
    """
    if not (name.isidentifier() and name.isascii() and name == name.lower()) or keyword.iskeyword(name):
        raise BadInputError(
            f"new module {name!r}: expected lower-case letters, digits and _, such as my_tasks; choose another name"
        )
    module, test = Path(f"{name}.py"), Path(f"test_{name}.py")
    for file in (module, test):
        if file.exists():
            raise BadInputError(f"new module {name}: expected no file {file}, found one; choose another name")
    if name in sys.stdlib_module_names or find_spec(name) is not None:
        raise BadInputError(f"new module {name}: it would hide an installed module of this name; choose another name")
    title = "".join(part.capitalize() for part in name.split("_"))
    text = (Path(__file__).parent / f"{template}.py").read_text("utf-8")
    taskset = f"{name}:{title}{tasks}"
    replace_file(module, text.replace("Scaffold", title).replace("scaffold", name).encode(), private=False)
    replace_file(test, _TEST.format(name=name, taskset=taskset).encode(), private=False)
    typer.echo(f"{module} and {test}; next: agent-layer tasksets check {taskset}")
