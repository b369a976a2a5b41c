"""Ingest of OTLP spans and of logs that other machines send."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__, {"app": "build_app", "messages": "ImportBatch line_trajectory_id make_records", "spans": "read_line"}
)
