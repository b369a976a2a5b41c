"""The append-only local log, through which every captured record passes."""

from typing import TYPE_CHECKING

from agent_layer.lazy import lazy_exports

if TYPE_CHECKING:
    from agent_layer.recorder.frames import (
        FRAME_HEADER as FRAME_HEADER,
    )
    from agent_layer.recorder.frames import (
        frame as frame,
    )
    from agent_layer.recorder.frames import (
        is_damaged as is_damaged,
    )
    from agent_layer.recorder.frames import (
        read_frames as read_frames,
    )
    from agent_layer.recorder.frames import (
        unframe as unframe,
    )
    from agent_layer.recorder.log import (
        FlushReport as FlushReport,
    )
    from agent_layer.recorder.log import (
        PreparedRecords as PreparedRecords,
    )
    from agent_layer.recorder.log import (
        Recorder as Recorder,
    )
    from agent_layer.recorder.log import (
        open_recorder as open_recorder,
    )
    from agent_layer.recorder.logfile import CLOSED as CLOSED
    from agent_layer.recorder.logfile import CORRUPT as CORRUPT
    from agent_layer.recorder.logfile import OPEN as OPEN
    from agent_layer.recorder.logfile import adopt as adopt
    from agent_layer.recorder.scrubbing import KeyScrubber as KeyScrubber
    from agent_layer.recorder.shipping import SHIPPER_ERROR as SHIPPER_ERROR
    from agent_layer.recorder.shipping import ensure_shipper as ensure_shipper
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "agent_layer.recorder.frames": (
                "FRAME_HEADER",
                "frame",
                "is_damaged",
                "read_frames",
                "unframe",
            ),
            "agent_layer.recorder.log": (
                "FlushReport",
                "PreparedRecords",
                "Recorder",
                "open_recorder",
            ),
            "agent_layer.recorder.logfile": (
                "CLOSED",
                "CORRUPT",
                "OPEN",
                "adopt",
            ),
            "agent_layer.recorder.scrubbing": ("KeyScrubber",),
            "agent_layer.recorder.shipping": ("SHIPPER_ERROR", "ensure_shipper"),
        },
    )
