"""Public sets of Harbor tasks, read where they lie: how many would run here, and what the others need.

    .venv/bin/python tests/benchmarks/harbor_survey.py FOLDER_OR_GIT_DIRECTORY...

Nothing of a set runs. A git directory is read at its newest commit. Each base image counts as there: which a machine
has is its user's choice (``--image-map``).
"""

import argparse
import os
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from agent_layer.errors import BadInputError
from envs.tasksets.harbor.directory import find_task_directories, read_task_directory
from envs.tasksets.harbor.needs import Allowed, list_needs

KINDS = ("network", "build", "live process", "service", "device", "steps", "other")


def survey(folder):
    """Return counts: tasks, malformed ones, those that run, and those that need something of a kind."""
    counts = Counter()
    for directory in find_task_directories(folder):
        counts["tasks"] += 1
        try:
            needs = list(list_needs(read_task_directory(directory, folder), lambda _: True, Allowed()))
        except BadInputError as error:
            counts["malformed"] += 1
            print(f"    {str(error).replace(str(folder), '')[:160]}")
            continue
        kinds = {"build" if need.kind == "image" else need.kind for need in needs}
        counts.update(kinds)
        counts["run"] += not kinds
        counts["run with a network"] += kinds <= {"network"}
    return counts


def unpack(repository, folder):
    """Write the files of the newest commit; one that a partial clone lacks is empty."""
    git = ["git", "-c", "safe.directory=*", "--git-dir", repository]
    listed = subprocess.run([*git, "ls-tree", "-r", "-z", "HEAD"], stdout=subprocess.PIPE, check=True).stdout
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"GIT_NO_LAZY_FETCH": "1"}
    ) as blobs:
        for row in listed.split(b"\0")[:-1]:
            about, _, name = row.partition(b"\t")
            mode, kind, digest = about.split()
            if kind != b"blob":
                continue
            blobs.stdin.write(digest + b"\n")
            blobs.stdin.flush()
            found = blobs.stdout.readline().split()
            content = b"" if found[-1] == b"missing" else blobs.stdout.read(int(found[-1]) + 1)[:-1]
            path = folder / os.fsdecode(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if mode == b"120000":
                path.symlink_to(os.fsdecode(content))
            else:
                path.write_bytes(content)
                path.chmod(0o755 if mode == b"100755" else 0o644)
        blobs.stdin.close()


def main():
    """Print a row of a Markdown table for each set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="+", type=Path)
    rows = []
    for one in parser.parse_args().sets:
        with tempfile.TemporaryDirectory() as unpacked:
            folder = one
            if (one / "HEAD").is_file():
                unpack(one, Path(unpacked))
                folder = Path(unpacked)
            rows.append((one, survey(folder)))
    print(f"| set | tasks | malformed | run here | with a network | {' | '.join(KINDS)} |")
    print(f"|{'---|' * (5 + len(KINDS))}")
    for one, counts in rows:
        cells = [counts[name] for name in ("tasks", "malformed", "run", "run with a network", *KINDS)]
        print(f"| {one.parent.name if one.name == 'repo' else one.name} | {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
