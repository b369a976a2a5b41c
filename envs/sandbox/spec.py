"""What every kind derives from a spec."""

from typing import Final, Literal, TypeAlias

from agent_layer.schema.sandbox import HOST_IMAGE, SandboxSpec

ImageForm: TypeAlias = Literal["host", "directory", "reference"]
"""The host's programs, a root directory of this machine, or a name that a registry or daemon knows."""


def image_form(spec: SandboxSpec) -> ImageForm:
    """Return what the image of a spec is."""
    if spec.image == HOST_IMAGE:
        return "host"
    return "directory" if spec.image.startswith("/") else "reference"


PROCESS_MEMORY: Final = 2
"""Times ``memory_mb`` that one process may write to where no cgroup limits memory; a watch counts what all use.

What is reserved alone does not count: WebAssembly in node reserves 10 GB for each memory."""
PATH: Final = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


def box_variables(spec: SandboxSpec, *, home: str, tmp: str) -> dict[str, str]:
    """Return the whole environment of commands in a box."""
    own = {"PATH": PATH, "HOME": home, "TMPDIR": tmp, "USER": "agent", "LOGNAME": "agent", "LANG": "C.UTF-8"}
    return {**own, **spec.env}
