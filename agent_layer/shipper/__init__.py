"""Ships closed log files: log to segment to index. One process per log directory."""

from agent_layer.lazy import face

__getattr__, __all__ = face(__name__, {"direct": "read_log_record"})
