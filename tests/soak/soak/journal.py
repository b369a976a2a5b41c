"""The journal: what ``append`` acknowledged, line by line, outside the store."""

import os
from pathlib import Path


class Journal:
    """One file for one process; a line is whole or not there when the process is killed."""

    def __init__(self, directory: str) -> None:
        self._file = os.open(Path(directory) / f"{os.getpid()}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, trajectory_id: str, *facts: str) -> None:
        """Note that these facts are stored durably."""
        os.write(self._file, "".join(f"{trajectory_id} {fact}\n" for fact in facts).encode())
