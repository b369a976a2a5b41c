"""Infrastructure: Redis, object stores, processes. The only importers of redis, boto3 and ctypes."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.infra.backoff import Backoff as Backoff
    from agent_layer.infra.batches import batched as batched
    from agent_layer.infra.counts import format_count as format_count
    from agent_layer.infra.counts import quantile as quantile
    from agent_layer.infra.extras import find_extra as find_extra
    from agent_layer.infra.extras import install_command as install_command
    from agent_layer.infra.files import make_private as make_private
    from agent_layer.infra.files import open_private as open_private
    from agent_layer.infra.files import replace_file as replace_file
    from agent_layer.infra.files import sync_path as sync_path
    from agent_layer.infra.files import write_beside as write_beside
    from agent_layer.infra.lines import LineReader as LineReader
    from agent_layer.infra.lines import append_line as append_line
    from agent_layer.infra.lines import read_lines as read_lines
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.infra.backoff": ("Backoff",),
            "agent_layer.infra.batches": ("batched",),
            "agent_layer.infra.counts": ("format_count", "quantile"),
            "agent_layer.infra.extras": ("find_extra", "install_command"),
            "agent_layer.infra.files": ("make_private", "open_private", "replace_file", "sync_path", "write_beside"),
            "agent_layer.infra.lines": ("LineReader", "append_line", "read_lines"),
        },
    )
