"""Images of tasks as root directories of this machine: bases by name, unpacked and built once, kept by their content.

A base is what ``--image-map NAME=LOCAL`` names: a root directory, or an OCI image (a layout, or an archive such as
``docker save`` writes). A Dockerfile is carried out over a copy of its base, commands in a box without network.
"""

import asyncio
import os
import shutil
import tarfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from fnmatch import fnmatchcase
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.infra import hold_lock, make_private, replace_file
from agent_layer.schema import TaskView, content_hash
from agent_layer.schema.sandbox import Resources, Sandbox, SandboxSpec, Snapshot
from envs.sandbox import PoolOptions, open_pool
from envs.tasksets.harbor.directory import list_tree, pack_tree
from envs.tasksets.harbor.dockerfile import (
    Copy,
    ImageConfig,
    MakeFolder,
    Run,
    Step,
    is_ignored,
    parse_dockerfile,
    plan_build,
    read_ignored,
)
from envs.tasksets.harbor.egress import NETWORK_VARIABLES, open_network
from envs.tasksets.harbor.root_directory import RootWriter

T = TypeVar("T")

_VERSION: Final = "1"
"""Version of what is built; another one builds again."""
_OWN: Final = ("proc", "sys", "dev")
_NUM_SHOWN: Final = 1500
_INDEX: Final = "index.json"
_PLAIN: Final = ImageConfig({}, "/", "root")


class Image(NamedTuple):
    """A root directory, and what its image says of commands."""

    root: Path
    config: ImageConfig


class ImageStore:
    """The images of one data directory.

    Args:
        folder: where images are kept; made where it is missing.
        image_map: ``NAME=LOCAL``, comma-separated: a name or pattern such as ``python:3.*``, and what stands for it;
            the first that fits counts.
        has_network: commands of builds reach the public network.
    """

    def __init__(self, folder: Path, image_map: str = "", *, has_network: bool = False) -> None:
        self._folder = folder
        self._variables = NETWORK_VARIABLES if has_network else {}
        self._map = [text.strip().rpartition("=") for text in image_map.split(",") if text.strip()]

    def find_local(self, name: str) -> str | None:
        """Return what stands for an image here; None: nothing."""
        plain = name.removeprefix("docker.io/").removeprefix("library/")
        names = {name, plain, plain if ":" in plain else f"{plain}:latest"}
        return next((local for known, _, local in self._map if any(fnmatchcase(one, known) for one in names)), None)

    def has(self, name: str) -> bool:
        """Whether something stands for an image here."""
        return self.find_local(name) is not None

    def open_base(self, name: str) -> Image:
        """Return the image of this name.

        Raises: BadInputError: nothing stands for it here, or what does is no image.
        """
        local = self.find_local(name)
        if local is None:
            raise BadInputError(f"image {name!r}: this machine has none; name one: --image-map {name}=DIRECTORY")
        path = Path(local).expanduser().resolve()
        if os.path.lexists(path / "bin/sh"):
            return Image(self._link(path), _PLAIN)
        if not path.is_file() and not any((path / name).is_file() for name in (_INDEX, "manifest.json")):
            raise BadInputError(
                f"image {name!r}: expected a root directory with bin/sh, or an OCI image, at {path}, found none; write"
                " one: docker create IMAGE, docker export CONTAINER | tar x -C DIRECTORY"
            )
        key = content_hash(f"{_VERSION} {path} {_time(path)}".encode())
        if (kept := self._find(key)) is not None:
            return kept
        with self._making(key) as making:
            return self._find(key) or self._keep(key, making, _unpack(path, making))

    async def build(self, base: str, context: Path, task: Path, resources: Resources, seconds: float) -> Image:
        """Return the image of a Dockerfile, built where it was not yet.

        Args:
            base: name of the image that it begins with.
            context: folder of the Dockerfile and of what it copies.
            task: the task's directory; nothing outside of it is copied.
            resources: of the box in which its commands run.
            seconds: longest time of all commands.

        Raises:
            BadInputError: a command fails, or a file to copy is missing.
            SandboxError: this machine makes no box with an image.
        """
        opened = self.open_base(base)
        instructions = parse_dockerfile(context / "Dockerfile")
        steps, config = plan_build(instructions, opened.config)
        described = [_VERSION, str(opened.root), str(_time(opened.root)), _hash_context(context, task), repr(steps)]
        key = content_hash("\n".join(described).encode("utf-8", "surrogateescape"))
        if (kept := self._find(key)) is not None:
            return kept
        with self._making(key) as making:
            if (kept := self._find(key)) is not None:
                return kept
            await _copy_root(opened.root, making)
            spec = SandboxSpec(
                image=str(making), workdir="/", resources=resources, env={"HOME": "/root", **self._variables}
            )
            await _carry_out(steps, spec, context, task, seconds)
            return self._keep(key, making, config)

    def note_directory(self, task: TaskView, spec: SandboxSpec, directory: Path) -> None:
        """Remember where a task is, for agents that run its reference: they know it and its box, and no setting."""
        place = self._place(task, spec)
        make_private(place.parent)
        replace_file(place, [os.fsencode(directory)])

    def find_directory(self, task: TaskView, spec: SandboxSpec) -> Path:
        """Return the directory that a task with this box was imported from last.

        Raises: BadInputError: it was not imported here.
        """
        try:
            return Path(os.fsdecode(self._place(task, spec).read_bytes()))
        except OSError as error:
            raise BadInputError(
                f"task {task.id!r}: was not imported here; run 'agent-layer tasksets import'"
            ) from error

    def _place(self, task: TaskView, spec: SandboxSpec) -> Path:
        key = [task.id, str(task.input), spec.image, spec.workdir]  # two sets may have one name
        return self._folder / "tasks" / content_hash(repr(key).encode("utf-8", "surrogateescape"))

    def _link(self, root: Path) -> Path:
        """Return a place beside the other images that leads to a root directory."""
        make_private(self._folder)
        link = self._folder / content_hash(os.fsencode(root))
        with suppress(FileExistsError):
            link.symlink_to(root)
        return link

    def _find(self, key: str) -> Image | None:
        try:
            config = msgspec.json.decode((self._folder / f"{key}.json").read_bytes(), type=ImageConfig)
        except (OSError, msgspec.DecodeError):
            return None
        return Image(self._folder / key, config)

    def _making(self, key: str) -> "_Making":
        make_private(self._folder)
        return _Making(self._folder, key)

    def _keep(self, key: str, making: Path, config: ImageConfig) -> Image:
        for name in _OWN:
            (making / name).mkdir(exist_ok=True)
        target = self._folder / key
        if not target.exists():
            making.chmod(0o755)
            making.rename(target)
        (self._folder / f"{key}.json").write_bytes(msgspec.json.encode(config))
        return Image(target, config)


class _Making:
    """A folder that becomes an image, or is removed; one process at a time makes the image of a key."""

    def __init__(self, folder: Path, key: str) -> None:
        self._lock = hold_lock(folder / f"{key}.lock")
        self._path = folder / f"making-{key}"

    def __enter__(self) -> Path:
        self._lock.__enter__()
        shutil.rmtree(self._path, ignore_errors=True)  # of a process that was killed
        self._path.mkdir(mode=0o700)
        return self._path

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        self._lock.__exit__(None, None, None)


async def _copy_root(root: Path, target: Path) -> None:
    """Copy a root directory, without what each box has of its own. Raises: BadInputError: it cannot be read."""
    names = [str(root / name) for name in os.listdir(root) if name not in _OWN]  # noqa: PTH208  # of a loop's thread
    copying = await asyncio.create_subprocess_exec(
        "cp", "-a", "--reflink=auto", "--", *names, str(target), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await copying.communicate()
    if copying.returncode:
        raise BadInputError(
            f"image {root}: cannot be copied, {errors.decode(errors='replace')[-_NUM_SHOWN:]}; unpack it"
            " as the user of this process"
        )


async def _carry_out(steps: list[Step], spec: SandboxSpec, context: Path, task: Path, seconds: float) -> None:
    """Carry out the steps of a build over the root directory of a box."""
    writer = RootWriter(Path(spec.image))
    first = next((number for number, step in enumerate(steps) if isinstance(step, Run)), len(steps))
    for step in steps[:first]:
        for files in _list_files(step, writer, context, task):
            with tarfile.open(fileobj=BytesIO(files.archive)) as archive:
                writer.extract(archive)
    if first == len(steps):
        return
    async with open_box(spec) as box, open_network(box), _limit_build(context, seconds):
        for step in steps[first:]:
            if not isinstance(step, Run):
                for files in _list_files(step, writer, context, task):
                    await box.restore(files)
                continue
            ran = await box.exec(step.argv, env=step.env, cwd=step.workdir, seconds=seconds, max_output=16 << 20)
            if ran.status != "exited" or ran.exit_code:
                output = (ran.stdout + ran.stderr)[-_NUM_SHOWN:].decode(errors="replace").strip()
                raise BadInputError(
                    f"{context / 'Dockerfile'} line {step.line}: RUN ended with"
                    f" {ran.exit_code if ran.status == 'exited' else ran.status} in a box, without root: {output};"
                    " build the image elsewhere, and name it with docker_image and --image-map"
                )
        changes = await box.snapshot(["/"])
    with tarfile.open(fileobj=BytesIO(changes.archive)) as archive:
        writer.extract(archive)


@asynccontextmanager
async def _limit_build(context: Path, seconds: float) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise BadInputError(
            f"{context / 'Dockerfile'}: its commands took longer than build_timeout_sec ({seconds:g}); raise it"
        ) from error


@asynccontextmanager
async def open_box(spec: SandboxSpec) -> AsyncGenerator[Sandbox]:
    """Take one box of a pool of its own."""
    async with open_pool(PoolOptions(ready_per_spec=0)) as pool:
        yield await pool.take(spec, owner="image")


def _list_files(step: Step, writer: RootWriter, context: Path, task: Path) -> list[Snapshot]:
    """Return what a step adds, as archives with absolute names."""
    match step:
        case MakeFolder(path):
            return [_archive_entry(path, None, 0o755)]
        case Copy(text=str(text)):
            return [_archive_entry(step.target, text.encode(), step.mode or 0o644)]
        case Copy():
            return [one for name in step.sources for one in _copy_source(step, name, writer, context, task)]
        case Run():
            return []


def _copy_source(step: Copy, name: str, writer: RootWriter, context: Path, task: Path) -> list[Snapshot]:
    ignored = read_ignored(context)
    pattern = os.path.normpath(name.lstrip("/") or ".")
    try:
        found = [context] if pattern == "." else sorted(context.glob(pattern))
    except ValueError:  # no pattern, or no path
        found = []
    found = [path for path in found if not is_ignored(path.relative_to(context).as_posix(), ignored)]
    if ".." in pattern.split("/") or not found:
        raise BadInputError(f"{context / 'Dockerfile'} line {step.line}: {name} is not in {context}; add it")
    archives = list[Snapshot]()
    for path in found:
        prefix = "" if path == context else f"{path.relative_to(context).as_posix()}/"
        target = step.target
        if path.is_file() and (target.endswith("/") or writer.find(target).is_dir()):
            target = f"{target.rstrip('/')}/{path.name}"
        archives.append(
            pack_tree(
                path.resolve(), target.rstrip("/") or "/.", task, keeps=partial(_keeps, ignored, prefix), mode=step.mode
            )
        )
    return archives


def _keeps(ignored: list[str], prefix: str, below: str) -> bool:
    return not is_ignored(prefix + below, ignored)


def _archive_entry(path: str, content: bytes | None, mode: int) -> Snapshot:
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo(path)
        member.type, member.mode, member.size = tarfile.REGTYPE, mode, len(content or b"")
        if content is None:
            member.type = tarfile.DIRTYPE
        archive.addfile(member, BytesIO(content or b""))
    return Snapshot(archive=buffer.getvalue())


def _hash_context(context: Path, task: Path) -> str:
    lines = [
        f"{path.relative_to(context).as_posix()} {path.stat().st_mode & 0o111} {content_hash(path.read_bytes())}"
        for path in list_tree(context, task)
        if path.is_file()
    ]
    return content_hash("\n".join(lines).encode("utf-8", "surrogateescape"))


def _time(path: Path) -> int:
    """Return when an image changed last, as far as its top tells."""
    return max(one.stat().st_mtime_ns for one in (path, path / "etc", path / _INDEX) if one.exists())


class _Descriptor(msgspec.Struct, frozen=True):
    digest: str


class _Manifest(msgspec.Struct, frozen=True):
    """``index.json`` of an OCI layout, or a manifest that it names."""

    manifests: list[_Descriptor] = []
    config: _Descriptor | None = None
    layers: list[_Descriptor] = []


class _SavedImage(msgspec.Struct, frozen=True, rename="pascal"):
    """``manifest.json``, as ``docker save`` writes it beside an index, or alone."""

    config: str
    layers: list[str]


class _RunConfig(msgspec.Struct, frozen=True, rename="pascal"):
    env: list[str] | None = None
    working_dir: str = ""
    user: str = ""


class _ConfigFile(msgspec.Struct, frozen=True):
    config: _RunConfig = _RunConfig()


def _unpack(path: Path, root: Path) -> ImageConfig:
    """Unpack an OCI image, a folder or an archive; return what it says of commands.

    Raises: BadInputError: it is none, or is damaged.
    """
    try:
        if path.is_file():
            layout = RootWriter(root).make_folder(".layout")
            with tarfile.open(path) as archive:
                RootWriter(layout).extract(archive)
            config = _unpack_layout(layout, root)
            shutil.rmtree(layout)
            return config
        return _unpack_layout(path, root)
    except (OSError, msgspec.DecodeError, tarfile.TarError) as error:
        raise BadInputError(
            f"image {path}: expected an OCI image (index.json and blobs), found {error}; write it again: skopeo copy,"
            " or docker save"
        ) from error


def _unpack_layout(layout: Path, root: Path) -> ImageConfig:
    if (layout / _INDEX).is_file():
        manifest = _read_layout(layout, _INDEX, _Manifest)
        while manifest.config is None and manifest.manifests:
            manifest = _read_layout(layout, _find_blob(manifest.manifests[0]), _Manifest)
        if manifest.config is None:
            raise BadInputError(f"image {layout}: names no configuration; write it again: skopeo copy, or docker save")
        config, layers = _find_blob(manifest.config), [_find_blob(one) for one in manifest.layers]
    else:
        saved = _read_layout(layout, "manifest.json", list[_SavedImage])[0]
        config, layers = saved.config, saved.layers
    found = _read_layout(layout, config, _ConfigFile).config
    for layer in layers:
        with tarfile.open(RootWriter(layout).find(layer)) as archive:
            RootWriter(root).extract(archive)
    env = {name: value for name, _, value in (one.partition("=") for one in found.env or [])}
    return ImageConfig(env, found.working_dir or "/", found.user or "root")


def _read_layout(layout: Path, name: str, kind: type[T]) -> T:
    return msgspec.json.decode(RootWriter(layout).find(name).read_bytes(), type=kind)


def _find_blob(one: _Descriptor) -> str:
    return f"blobs/{one.digest.replace(':', '/')}"
