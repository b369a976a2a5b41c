"""Ships closed log files: log to segment to index. One process per log directory."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.shipper.direct import read_log_record as read_log_record
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.shipper.direct": ("read_log_record",),
        },
    )
