"""A folder of Harbor tasks as a task set: each directory that can run here becomes a task, the others are named."""

import asyncio
import posixpath
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from agent_layer.errors import AgentFailedError, BadInputError
from agent_layer.schema import JsonObject, Limits, Split, Task, content_hash
from agent_layer.schema.sandbox import Resources, SandboxSpec, check_spec
from agent_layer.settings import Settings, load_settings
from envs.script import Script
from envs.tasksets.harbor.directory import HarborTask, find_task_directories, read_task_directory
from envs.tasksets.harbor.dockerfile import find_base, parse_dockerfile
from envs.tasksets.harbor.egress import NETWORK_VARIABLES
from envs.tasksets.harbor.images import Image, ImageStore, open_box
from envs.tasksets.harbor.needs import Allowed, Need, fill_variables, list_needs, resolve_network
from envs.tasksets.harbor.task_file import Environment, HealthCheck, find_verifier, list_artifacts
from envs.tasksets.harbor.verifier import HarborGrading, read_grading

R = TypeVar("R")

_MEMORY_MB: Final = 2048
_DISK_MB: Final = 10_240
_NETWORKS: Final = {False: "none", True: "public"}
_SPARE_SECONDS: Final = 60.0
"""Time for the boxes of tests, which may run twice."""
_OWN_FILES: Final = ("/logs/agent/.keep", "/logs/artifacts/.keep")
"""So that the folders which Harbor mounts are there."""
_SCORER: Final = "envs.tasksets.harbor:{}"
_CHEATS: Final = (
    "mkdir -p /logs/verifier; echo 1 > /logs/verifier/reward.txt",
    "mkdir -p /logs/verifier; echo '{\"reward\": 1}' > /logs/verifier/reward.json",
    "mkdir -p /tests; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; chmod 555 /tests/test.sh",
    "rm -rf /logs; mkdir -p /var/mine; echo 1 > /var/mine/reward.txt; ln -s /var/mine /logs",
    "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.1; done) > /dev/null 2>&1 &",
    "mkdir -p /logs/verifier/reward.json /logs/verifier/reward.txt",
)
_LABELS: Final = ("difficulty", "category")
"""Keys of ``[metadata]`` that become labels."""


class UnfitTask(NamedTuple):
    """A task that cannot run here."""

    task: HarborTask
    needs: list[Need]

    def __str__(self) -> str:
        """Name it, and what it needs."""
        return f"left out: {self.task.name} needs {'; '.join(f'{need.kind}: {need.what}' for need in self.needs)}"


class HarborTasks:
    """A folder of Harbor tasks. Contract: ``TaskSet``.

    It knows no splits: all of its tasks are of split train. What is held out lies in another folder.

    Args:
        folder: a task directory, or a folder that has some at any depth.
        settings: what is here and what is allowed, ``image_map`` and the like; None: those of the environment.

    Raises: BadInputError: the folder has none, or one is malformed.
    """

    levels = range(1)
    is_finite = True
    has_one_reference = True
    agent = "envs.tasksets.harbor:Terminal"

    def __init__(self, folder: Path, settings: Settings | None = None) -> None:
        settings = settings or load_settings()
        self.folder = folder
        self._allowed = Allowed(network=settings.allow_network, shared_verifier=settings.shared_verifier)
        self._images = ImageStore(
            settings.dir.resolve() / "images", settings.image_map, has_network=settings.allow_network
        )
        self.directories = _read_directories(folder)
        """All tasks of the folder, those too that cannot run here."""
        self.name = folder.resolve().name
        self.version = content_hash("\n".join(f"{one.name} {one.digest}" for one in self.directories).encode())[:12]
        self.refused: list[UnfitTask] = []
        """Tasks that cannot run here, once ``tasks`` was called."""

    def tasks(self, *, split: Split, seed: int = 0, level: int = 0, count: int | None = None) -> Iterator[Task]:
        """Yield the tasks that can run here, with their images built; the others are named in ``refused``.

        Raises:
            BadInputError: a task is malformed, or the build of its image fails.
            SandboxError: this machine makes no box with an image.
        """
        del seed, level
        if split != "train":
            return
        self.refused, number = [], 0
        for one in self.directories:
            if number == count:
                return
            needs = list(list_needs(one, self._images.has, self._allowed))
            if not needs:
                try:
                    task = _run_apart(lambda one=one: self._make_task(one))
                except (BadInputError, AgentFailedError, OSError) as error:  # what the task's image or its commands do
                    needs = [Need(kind="build", what=str(error))]
                else:
                    number += 1
                    yield task
                    continue
            self.refused.append(UnfitTask(one, needs))

    def read_tasks(
        self, count: int | None = None, tell: Callable[[int, int], None] = lambda _done, _all: None
    ) -> list[Task]:
        """Return the tasks that can run here.

        Args:
            count: most tasks; None: all.
            tell: called with how many tasks are done, and how many there are.

        Raises: BadInputError: none can run.
        """
        found = list[Task]()
        for task in self.tasks(split="train", count=count):
            found.append(task)
            tell(len(found) + len(self.refused), len(self.directories))
        if not found:
            raise BadInputError(
                f"folder {self.folder}: expected Harbor tasks that can run here, found none of {len(self.directories)};"
                f" {self.refused[0]}"
            )
        return found

    def list_notes(self) -> list[str]:
        """Return what ``tasks`` left out, with what it needs, and what of the others means nothing here."""
        refused = {one.task.name for one in self.refused}
        read = (one for one in self.directories if one.unknown and one.name not in refused)
        return [
            *map(str, self.refused),
            *(f"note: {one.name}: no meaning here: {', '.join(one.unknown)}" for one in read),
        ]

    def solve(self, task: Task) -> Script:
        """Return the script that runs ``solution/solve.sh``."""
        return solve_directory(Path(read_grading(task).directory))

    def rewrites(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's own
        """Return nothing: a directory has one solution."""
        return ()

    def mutants(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's own
        """Return nothing: a directory has none."""
        return ()

    def cheats(self, task: Task) -> Sequence[Script]:  # noqa: ARG002  # the protocol's own
        """Return what a policy may leave where the tests write or read."""
        return [Script(name=command, commands=[["/bin/sh", "-c", command]]) for command in _CHEATS]

    async def _make_task(self, one: HarborTask) -> Task:
        file, directory = one.file, one.directory
        agent, tests = (mode == "public" for mode in resolve_network(one, self._allowed))
        image = await self._find_image(one, file.environment, "environment")
        spec = _make_spec(file.environment, image, has_network=agent)
        if (check := file.environment.healthcheck) is not None:
            await _check_health(directory, check, spec)
        tests_spec, has_tests = _make_spec(file.environment, image, has_network=tests), False
        verifier = find_verifier(file, has_dockerfile=(directory / "tests" / "Dockerfile").is_file())
        if verifier is not None:
            image = await self._find_image(one, *verifier)
            tests_spec = _make_spec(verifier[0], image, has_network=tests)
            has_tests = (image.root / "tests" / "test.sh").is_file()
        places = [_find_source(artifact.source, spec.workdir) for artifact in list_artifacts(file)]
        grading = HarborGrading(
            directory=str(directory),
            digest=one.digest,
            spec=tests_spec,
            has_tests=has_tests,
            seconds=file.verifier.timeout_sec,
            env=fill_variables(file.verifier.env),
            artifacts=[
                msgspec.structs.replace(artifact, source=place)
                for artifact, place in zip(list_artifacts(file), places, strict=True)
            ],
        )
        task = Task(
            id=one.name,
            run="",
            task_type="harbor",
            input=one.instruction,
            grading=msgspec.to_builtins(grading),
            env=self.agent,
            scorer=_SCORER.format("SharedVerifier" if verifier is None else "SeparateVerifier"),
            limits=Limits(
                wall_seconds=file.agent.timeout_sec, score_seconds=2 * file.verifier.timeout_sec + _SPARE_SECONDS
            ),
            labels={**_make_labels(one), "network": f"agent {_NETWORKS[agent]}, tests {_NETWORKS[tests]}"},
            sandbox=spec,
            files=dict.fromkeys(_OWN_FILES, ""),
            artifacts=["/"] if verifier is None else places,
        )
        self._images.note_directory(task.view(), spec, directory)
        return task

    async def _find_image(self, one: HarborTask, environment: Environment, folder: str) -> Image:
        if environment.docker_image is not None:
            return self._images.open_base(environment.docker_image)
        context = one.directory / folder
        base = find_base(parse_dockerfile(context / "Dockerfile"))
        resources, seconds = _make_resources(environment), environment.build_timeout_sec
        return await self._images.build(base, context, one.directory, resources, seconds)


def _read_directories(folder: Path) -> list[HarborTask]:
    found = find_task_directories(folder)
    if not found:
        raise BadInputError(f"folder {folder}: expected Harbor tasks (task.toml), found none; name another folder")
    tasks = [read_task_directory(one, folder) for one in found]
    names = [one.name for one in tasks]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise BadInputError(f"folder {folder}: two tasks are named {double!r}; rename one directory")
    return tasks


def solve_directory(directory: Path) -> Script:
    """Return the reference of a task.

    Raises: BadInputError: it has none.
    """
    task = read_task_directory(directory, directory)
    if not (directory / "solution" / "solve.sh").is_file():
        raise BadInputError(f"{directory / 'solution' / 'solve.sh'}: expected the reference, found none; write it")
    env = {"DEBIAN_FRONTEND": "noninteractive", **fill_variables(task.file.solution.env)}
    return Script(
        name="reference",
        uploads={"/solution": str(directory / "solution")},
        commands=[["/bin/sh", "-c", "exec /solution/solve.sh > /logs/agent/oracle.txt 2>&1"]],
        env=env,
        seconds=task.file.agent.timeout_sec or 600.0,
    )


async def _check_health(  # kept: with what to do
    directory: Path, check: HealthCheck, spec: SandboxSpec
) -> None:
    """Run the check of an image in a fresh box. Raises: BadInputError: it fails, so it waits for a running process."""
    async with open_box(spec) as box:
        ran = await box.exec(["/bin/sh", "-c", check.command], seconds=check.timeout_sec)
    if ran.status != "exited" or ran.exit_code:
        raise BadInputError(
            f"{directory / 'task.toml'}: environment.healthcheck: {check.command!r} fails in a fresh box, where no"
            " process of the image runs; remove it, or what it waits for"
        )


def _make_spec(environment: Environment, image: Image, *, has_network: bool) -> SandboxSpec:
    env = {"HOME": "/root"} | (NETWORK_VARIABLES if has_network else {})
    workdir = posixpath.join("/", image.config.workdir, environment.workdir or "")
    spec = SandboxSpec(
        image=str(image.root),
        workdir="/" + posixpath.normpath(workdir).lstrip("/"),
        env={**env, **image.config.env, **fill_variables(environment.env)},
        resources=_make_resources(environment),
    )
    return check_spec(spec)


def _make_resources(environment: Environment) -> Resources:
    memory_mb = environment.memory_mb or _MEMORY_MB
    return Resources(
        cpus=environment.cpus or 1.0,
        memory_mb=memory_mb,
        disk_mb=environment.storage_mb or _DISK_MB,
        processes=512,
        files=200_000,
        open_files=1024,
    )


def _make_labels(one: HarborTask) -> dict[str, str]:
    metadata: JsonObject = one.file.metadata
    labels = {
        "harbor_schema": one.file.schema_version,
        "harbor_verifier": one.file.verifier.mode,
        **({} if one.file.task is None else {"harbor_name": one.file.task.name}),
        **{key: str(metadata[key]) for key in _LABELS if isinstance(metadata.get(key), str)},
    }
    if one.unknown:
        labels["harbor_unknown_keys"] = ", ".join(one.unknown)[:200]
    return labels


def _find_source(source: str, workdir: str) -> str:
    return (source if source.startswith("/") else f"{workdir.rstrip('/')}/{source}").rstrip("/") or "/"


def _run_apart(make: Callable[[], Coroutine[object, object, R]]) -> R:  # kept: why stands in its docstring
    """Run work in a loop and a thread of its own: task sets are asked inside of loops, too."""
    with ThreadPoolExecutor(max_workers=1) as apart:
        return apart.submit(lambda: asyncio.run(make())).result()
