"""Infrastructure: Redis, object stores, processes. The only importers of redis, boto3 and ctypes."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.infra.backoff import Backoff as Backoff
    from agent_layer.infra.batches import batched as batched
    from agent_layer.infra.extras import find_extra as find_extra
    from agent_layer.infra.extras import install_command as install_command
    from agent_layer.infra.lines import append_line as append_line
    from agent_layer.infra.lines import read_lines as read_lines
    from agent_layer.infra.private import make_private as make_private
    from agent_layer.infra.private import open_private as open_private
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.infra.backoff": ("Backoff",),
            "agent_layer.infra.batches": ("batched",),
            "agent_layer.infra.extras": ("find_extra", "install_command"),
            "agent_layer.infra.lines": ("append_line", "read_lines"),
            "agent_layer.infra.private": ("make_private", "open_private"),
        },
    )
