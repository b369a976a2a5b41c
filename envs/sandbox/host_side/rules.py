"""What the server of a box has to know, and which specs kinds with a root directory of their own can make."""

import os
from pathlib import Path
from typing import Final

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import HOST_IMAGE, Resources, SandboxSpec
from envs.sandbox.host_side.zygote import has_own_users
from envs.sandbox.spec import PROCESS_MEMORY, box_variables

BOX_USER: Final = 1000
"""Number of the box's user inside."""
_TAKEN: Final = ("", "bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "old", "proc", "run", "sbin", "tmp", "usr")
_COVERED: Final = ("dev", "proc", "tmp")
_SERVER_MB: Final = 16
"""Memory for the server of a box and for one small command."""


def box_rules(spec: SandboxSpec, *, has_cgroup: bool) -> dict[str, object]:
    """Return rules for the server of a box.

    Args:
        spec: of the box.
        has_cgroup: one limits its memory and processes.
    """
    resources = spec.resources
    memory_bytes = resources.memory_mb << 20
    return {
        "user": BOX_USER,
        "is_alone": not has_own_users(),
        "has_image": spec.image != HOST_IMAGE,
        "workdir": spec.workdir,
        "variables": box_variables(spec, home=spec.workdir, tmp="/tmp"),
        "limits": {
            # without users of its own, the server of the box has the same one
            "processes": resources.processes + (0 if has_own_users() else 1),
            "open_files": resources.open_files,
            "file_bytes": writable_mb(resources) << 20,
            "memory_bytes": None if has_cgroup else PROCESS_MEMORY * memory_bytes,
        },
        "watched_bytes": None if has_cgroup else memory_bytes,
        # as if each descriptor were watched once
        "max_watches": None if has_own_users() else resources.processes * resources.open_files,
    }


def writable_mb(resources: Resources) -> int:
    """Return how much a box may write: its files are in its memory, and must leave some for its server.

    Else code that fills the disk would end the box, which counts as a failure of the machine.
    """
    return max(1, min(resources.disk_mb, resources.memory_mb - _SERVER_MB))


def check_workdir(spec: SandboxSpec) -> None:
    """Raise an error when the work directory would cover what boxes with the host's programs have there."""
    if (top := spec.workdir.split("/")[1]) in _TAKEN:
        raise BadInputError(
            f"sandbox: the box has its own /{top}, found workdir {spec.workdir}; choose one such as /work"
        )


def check_mounts(spec: SandboxSpec) -> None:
    """Raise an error when a folder that the box is to see is none of this machine."""
    for place in spec.mounts:
        if not Path(place).is_dir() or Path(place).resolve() != Path(place):
            raise BadInputError(
                f"sandbox: expected a mount as a folder of this machine, by its path without links, found {place}"
            )


def check_image(spec: SandboxSpec) -> None:
    """Raise an error when the image is no directory that can be the root of a box."""
    image = Path(spec.image)
    if not image.is_absolute() or not image.is_dir() or image.resolve() == Path("/"):
        raise BadInputError(
            f"sandbox: expected the image as 'host' or the absolute path of a root directory, found {spec.image!r};"
            " unpack one, or name another kind"
        )
    if not os.path.lexists(image / "bin/sh"):
        raise BadInputError(f"sandbox: {spec.image} has no /bin/sh; expected a root directory with programs")
    if (top := spec.workdir.split("/")[1]) in _COVERED:
        raise BadInputError(
            f"sandbox: the box has its own /{top}, found workdir {spec.workdir}; choose one such as /work"
        )
