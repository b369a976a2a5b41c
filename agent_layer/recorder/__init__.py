"""This file holds what the recorder package offers: the append-only local log that nothing captured gets past."""

from agent_layer.recorder.log import FlushReport, Recorder, open_recorder

__all__ = ["FlushReport", "Recorder", "open_recorder"]
