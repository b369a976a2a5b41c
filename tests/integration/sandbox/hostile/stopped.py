"""A process that stops itself, and never ends."""

os.kill(os.getpid(), signal.SIGSTOP)
