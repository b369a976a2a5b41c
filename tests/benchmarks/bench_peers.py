"""This file holds where the peers live that are measured beside us: see the Makefile."""

import sys
from pathlib import Path

__all__ = ["PEERS_PYTHON"]

PEERS_PYTHON = Path(sys.prefix) / "peers" / "bin" / "python"
