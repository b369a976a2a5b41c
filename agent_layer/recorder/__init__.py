"""The append-only local log, through which every captured record passes."""

from agent_layer.lazy import face

__getattr__, __all__ = face(
    __name__,
    {
        "frames": "FRAME_HEADER frame is_damaged read_frames unframe",
        "log": "FlushReport PreparedRecords Recorder open_recorder",
        "logfile": "CLOSED CORRUPT OPEN adopt",
        "scrubbing": "KeyScrubber",
        "shipping": "SHIPPER_ERROR SHIPPER_REFUSAL ensure_shipper",
    },
)
