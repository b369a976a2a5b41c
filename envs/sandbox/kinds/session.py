"""Kind ``session``: boxes for long episodes, whose root directory is the host's programs or an image of its own.

Bubblewrap makes the root directory and the namespaces of a box; a server that the warm zygote has forked enters them.
So a box costs one process, and no interpreter is started. What the image contains lies below an overlay, whose upper
directory is memory that ``disk_mb`` bounds: the box's user owns the image's files, and changes none of the image's.
"""

import os
import shutil

from agent_layer.errors import SandboxError
from agent_layer.schema.sandbox import HOST_IMAGE, Isolation, SandboxSpec
from envs.sandbox.host_side.rules import check_image, check_workdir
from envs.sandbox.host_side.zygote import FIRST_USER, NUM_USERS, has_own_users
from envs.sandbox.host_side.zygote_kind import ZygoteKind
from envs.sandbox.spec import PATH, ImageForm


class SessionKind(ZygoteKind):
    """Makes boxes from one zygote for each image. Contract: ``SandboxKind``."""

    name = "session"
    isolation: Isolation = "namespace"
    cost = 20
    images: frozenset[ImageForm] = frozenset({"host", "directory"})
    stops = (
        "Stops: what kind namespace stops, with a root directory that can be an image, and whose files the box's user"
        " may change for itself. Does not stop: holes in the host's kernel, which it shares, and timing attacks on"
        " neighbours."
    )
    first_user = FIRST_USER + NUM_USERS

    def describe(self) -> str:
        """Return what boxes use on this machine."""
        return f"bubblewrap, {super().describe()}"

    def check(self, spec: SandboxSpec) -> None:
        """Raise an error when the image is no directory that can be a root, or bubblewrap is missing."""
        if spec.image == HOST_IMAGE:
            check_workdir(spec)
        else:
            check_image(spec)
        find_bubblewrap()

    def complete_config(self, config: dict[str, object]) -> None:
        """Add its users: all of the kind's own, as an image has files of many."""
        config["users"] = [[0, 0, NUM_USERS if has_own_users() else 1]]
        config["bubblewrap"] = find_bubblewrap()


def find_bubblewrap() -> str:
    """Return the path of ``bwrap``. Raises: SandboxError: it is missing."""
    path = shutil.which("bwrap", path=PATH)
    if path is None:
        raise SandboxError(
            "sandbox: bubblewrap is missing; install it: apt-get install bubblewrap, or dnf install bubblewrap"
        )
    real = os.path.realpath(path)
    if not real.startswith("/usr/"):
        raise SandboxError(f"sandbox: expected bubblewrap below /usr, found {real}; install the distribution's")
    return real
