# Written from the table in __init__.py by .ci/write_faces.py ('make format').
from .frames import FRAME_HEADER as FRAME_HEADER, frame as frame, is_damaged as is_damaged, read_frames as read_frames
from .frames import unframe as unframe
from .log import FlushReport as FlushReport, PreparedRecords as PreparedRecords, Recorder as Recorder
from .log import open_recorder as open_recorder
from .logfile import CLOSED as CLOSED, CORRUPT as CORRUPT, OPEN as OPEN, adopt as adopt
from .scrubbing import KeyScrubber as KeyScrubber
from .shipping import SHIPPER_ERROR as SHIPPER_ERROR, SHIPPER_REFUSAL as SHIPPER_REFUSAL
from .shipping import ensure_shipper as ensure_shipper
