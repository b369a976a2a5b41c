"""Record the run that ``agent-layer view --demo`` shows: train the demo, and pack what it stored.

python tests/record_demo.py               train in a temporary directory (about 4 minutes), then pack
python tests/record_demo.py --from DIR    pack what 'agent-layer --dir DIR demo' stored
"""

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from agent_layer.infra import Keys, open_objects
from agent_layer.settings import Settings
from agent_layer.view.demo.recording import RECORDING, pack_recording

MAX_BYTES = 2_000_000
"""What the package may grow by."""
STEPS = 32
"""Updates after which the page has something to tell, and the recording is still small."""


def main() -> int:
    """Train unless a store is given, pack it, and report the size; 1: it is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="a directory with a finished demo")
    parser.add_argument("--steps", type=int, default=STEPS, help="updates to train (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RECORDING, help="file to write (default: the package's own)")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="recording-") as temporary:
        home = options.source or Path(temporary)
        if options.source is None:
            command = ["-m", "agent_layer.cli", "--dir", str(home), "demo", "--steps", str(options.steps)]
            subprocess.run([sys.executable, *command], check=True)
        settings = Settings(dir=home, redis_url=None, objects_url=None)
        size = pack_recording(Keys("default"), open_objects(settings), home / "runs", options.out)
    sys.stdout.write(f"{options.out}: {size:,} bytes of at most {MAX_BYTES:,}\n")
    return size > MAX_BYTES


if __name__ == "__main__":
    sys.exit(main())
