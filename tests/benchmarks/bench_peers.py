"""Location of the peers' environment: see the Makefile."""

import sys
from pathlib import Path

__all__ = ["LIGHTNING_PYTHON", "PEERS_PYTHON"]

PEERS_PYTHON = Path(sys.prefix) / "peers" / "bin" / "python"
LIGHTNING_PYTHON = Path(sys.prefix) / "lightning" / "bin" / "python"
"""Agent Lightning 1.0, which asks for Python 3.12; not there where the machine has none."""
