"""Signals to everything at once."""

for pid in (-1, 0, -os.getpid(), -1):
    attempt(os.kill, pid, signal.SIGKILL)
