"""Kind ``namespace``: boxes on the host's kernel with a view of their own, made in milliseconds by a warm zygote."""

from agent_layer.errors import BadInputError
from agent_layer.schema.sandbox import Isolation, SandboxSpec
from envs.sandbox.host_side.rules import BOX_USER, check_workdir
from envs.sandbox.host_side.zygote import FIRST_USER, has_own_users
from envs.sandbox.host_side.zygote_kind import ZygoteKind
from envs.sandbox.spec import ImageForm


class NamespaceKind(ZygoteKind):
    """Makes boxes from one zygote. Contract: ``SandboxKind``."""

    name = "namespace"
    isolation: Isolation = "namespace"
    cost = 10
    images: frozenset[ImageForm] = frozenset({"host"})
    stops = (
        "Stops: reading or changing the host's files, processes, users, secrets and network; more memory, processes,"
        " files, output and time than allowed. Does not stop: holes in the host's kernel, which it shares, and timing"
        " attacks on neighbours."
    )
    first_user = FIRST_USER

    def check(self, spec: SandboxSpec) -> None:
        """Raise an error for other images, and for work directories that would cover the box's own."""
        if spec.image != "host":
            raise BadInputError(
                f"sandbox: kind namespace has the image 'host' only, found {spec.image!r}; name another kind"
            )
        check_workdir(spec)

    def complete_config(self, config: dict[str, object]) -> None:
        """Add its users, by their numbers inside and in the zygote's own namespace."""
        config["users"] = [[0, 0, 1]]
        if has_own_users():
            first = 2 * self.next_slot()
            config["users"] = [[0, first, 1], [BOX_USER, first + 1, 1]]
