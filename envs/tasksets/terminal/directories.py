"""Chores as directories in Harbor's form (schema 1.4), for any harness that reads it.

The verifier is separate: only the files of the result travel into its box, and they are read as data. What they must be
is in that box alone, and nothing of the agent's runs there.
"""

import json
from pathlib import Path
from typing import Final

from envs.tasksets.terminal.problems import Problem

_IMAGE: Final = "python:3.11-bookworm"
"""Has bash, git and Python; building needs no network beside the image itself."""
_WORKDIR: Final = "/work"
_TASK: Final = """\
schema_version = "1.4"
artifacts = {artifacts}

[task]
name = "agent-layer/{id}"
description = "A generated chore at a terminal."

[metadata]
kind = "{kind}"
level = {level}

[agent]
timeout_sec = 600.0

[environment]
network_mode = "no-network"
workdir = "{workdir}"
cpus = 1
memory_mb = 512
storage_mb = 1024

[verifier]
timeout_sec = 60.0
environment_mode = "separate"

[verifier.environment]
network_mode = "no-network"
cpus = 1
memory_mb = 512
storage_mb = 1024
"""
_DOCKERFILE: Final = """\
FROM {image}
WORKDIR {workdir}
COPY files/ {workdir}/
COPY prepare.sh {workdir}/.prepare.sh
RUN bash -e .prepare.sh && rm .prepare.sh
"""
_TEST_DOCKERFILE: Final = """\
FROM {image}
COPY . /tests/
"""
_TEST: Final = """\
#!/bin/bash
mkdir -p /logs/verifier
if python3 -I /tests/compare.py /tests/expected.json {workdir}; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


def write_directory(problem: Problem, folder: Path) -> None:
    """Write a chore as the directory ``folder``, which is new or empty.

    Raises: OSError: it cannot be written.
    """
    chore, task = problem.chore, problem.task
    texts = {
        "task.toml": _TASK.format(
            artifacts=json.dumps([f"{_WORKDIR}/{path}" for path in chore.results]),
            id=task.id,
            kind=problem.kind,
            level=task.labels["level"],
            workdir=_WORKDIR,
        ),
        "instruction.md": f"{chore.instruction}\n\nAll paths are below {_WORKDIR}.\n",
        "environment/Dockerfile": _DOCKERFILE.format(image=_IMAGE, workdir=_WORKDIR),
        "environment/prepare.sh": chore.prepare or "true\n",
        "solution/solve.sh": f"#!/bin/bash\nset -e\ncd {_WORKDIR}\n{chore.solution}",
        "tests/Dockerfile": _TEST_DOCKERFILE.format(image=_IMAGE),
        "tests/test.sh": _TEST.format(workdir=_WORKDIR),
        "tests/expected.json": json.dumps(dict(chore.results), indent=1),
        "tests/compare.py": (Path(__file__).parent / "compare.py").read_text("utf-8"),
        **{f"environment/files/{path}": text for path, text in chore.files.items()},
    }
    (folder / "environment" / "files").mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
        (folder / path).chmod(0o755 if path.endswith(".sh") else 0o644)
