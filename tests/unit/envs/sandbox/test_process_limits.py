"""Limits of the processes in a box, where no cgroup counts their memory."""

import subprocess
import sys

PROGRAM = """
import ctypes, mmap
from envs.sandbox.guest.lockdown import Limits, set_limits

set_limits(Limits(processes=4096, open_files=64, file_bytes=1 << 20, memory_bytes=256 << 20))
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
reserved = libc.mmap(None, ctypes.c_size_t(10 << 30), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_long(0))
print(reserved != ctypes.c_void_p(-1).value)
try:
    bytearray(512 << 20)
except MemoryError:
    print("refused")
"""


def test_memory_that_is_only_reserved_does_not_count_and_what_is_written_does():
    """node reserves 10 GB for each memory of WebAssembly, and uses kilobytes."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "refused"]
