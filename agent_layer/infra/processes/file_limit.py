"""Limit of open files of processes with thousands of connections."""

import resource
from contextlib import suppress

_MAX_FILES = 65_536


def raise_file_limit() -> None:
    """Raise the limit of open files as far as allowed: such a process has thousands of connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
