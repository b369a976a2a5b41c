"""What a sandbox has to be."""

from typing import Final, Literal, TypeAlias

import msgspec

from agent_layer.errors import BadInputError
from agent_layer.schema import Record, content_hash

Isolation: TypeAlias = Literal["none", "process", "namespace", "instruction", "kernel", "machine"]
"""What stands between the code in a sandbox and its host, weakest first.

none         nothing
process      limits of a process; the code sees what its user sees
namespace    a view of its own of files, processes, users and network, on the host's kernel
instruction  an interpreter that lets no system call through (WebAssembly)
kernel       a kernel of its own in user space (gVisor)
machine      virtual hardware
"""
ISOLATIONS: Final[tuple[Isolation, ...]] = ("none", "process", "namespace", "instruction", "kernel", "machine")
"""Weakest first."""
HOST_IMAGE: Final = "host"
"""The host's programs and libraries, read-only; never its homes, its keys or its configuration."""

_OWN_FOLDERS: Final = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "tmp", "usr")
"""Top folders of a box that are its own, or that it has anyway."""


class Resources(Record, frozen=True, kw_only=True):
    """What all processes of a sandbox may use up together."""

    cpus: float = 1.0
    """Shares of one core. Where the machine offers no writable cgroup, only the CPU seconds of an exec are limited."""
    memory_mb: int = 512
    """Beyond it, processes of the sandbox are killed, and the exec ends as ``oom``."""
    disk_mb: int = 256
    """Bytes that can be written, temporary files included. Files of most kinds are in the memory of the box, which then
    bounds them too."""
    processes: int = 64
    """Processes and threads."""
    files: int = 4096
    """Files and folders that can be created."""
    open_files: int = 256
    """Descriptors of one process."""


class SandboxSpec(Record, frozen=True, kw_only=True):
    """Everything that decides how a sandbox is made. Sandboxes of equal specs replace each other in a pool."""

    kind: str | None = None
    """Name of a kind; None: the cheapest kind of this machine that isolates well enough."""
    isolation: Isolation = "namespace"
    """Weakest isolation that will do, for ``kind=None``."""
    image: str = HOST_IMAGE
    """``host``, a root directory, or an OCI reference; not every kind takes all three."""
    workdir: str = "/work"
    """Absolute path in the box. Commands start there, relative paths begin there, and it is writable; ``/`` only where
    the image is a root directory."""
    env: dict[str, str] = {}
    """Variables that commands get beside PATH, HOME, LANG, TMPDIR and USER. The host's variables never enter."""
    resources: Resources = Resources()
    mounts: list[str] = []
    """Folders of the host that the sandbox sees under the same path, read-only: programs that are outside of its image.
    Workers name them; tasks may not."""

    def hash(self) -> str:
        """Return 32 hexadecimal digits that equal specs share, on every machine; a field left at its default is out."""
        fields = _differences(self, SandboxSpec())
        fields["resources"] = _differences(self.resources, Resources())
        return content_hash(msgspec.msgpack.encode(fields, order="deterministic"))


def _differences(spec: msgspec.Struct, default: msgspec.Struct) -> dict[str, object]:
    defaults = msgspec.structs.asdict(default)
    return {name: value for name, value in msgspec.structs.asdict(spec).items() if value != defaults[name]}


def check_spec(spec: SandboxSpec) -> SandboxSpec:
    """Return the spec if a sandbox can be made from it.

    Raises: BadInputError: a limit is not positive, or the work directory is not a plain absolute path.
    """
    limits = msgspec.structs.asdict(spec.resources)
    del limits["unknown"]
    if wrong := [name for name, limit in limits.items() if not limit > 0]:
        raise BadInputError(
            f"sandbox: expected a positive {wrong[0]}, found {limits[wrong[0]]}; every resource has a limit"
        )
    if not _is_plain(spec.workdir) and (spec.workdir != "/" or spec.image == HOST_IMAGE):
        raise BadInputError(f"sandbox: expected workdir as an absolute path such as /work, found {spec.workdir!r}")
    for place in spec.mounts:
        if not _is_plain(place) or place.split("/")[1] in _OWN_FOLDERS or _overlap(place, spec.workdir):
            raise BadInputError(
                f"sandbox: expected a mount as an absolute path outside of the sandbox's own folders, found {place!r}"
            )
    texts = [text for pair in spec.env.items() for text in pair]
    if any("\0" in text for text in texts) or any(not name or "=" in name for name in spec.env):
        raise BadInputError("sandbox: expected variables without NUL, and names without '='; correct env")
    return spec


def _is_plain(path: str) -> bool:
    """Whether a path is absolute, and says where it leads."""
    return path.startswith("/") and all(part and part not in (".", "..") for part in path.split("/")[1:])


def _overlap(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")
