"""Children of the server itself, in sessions of their own, which block every signal and stop."""

CLONE_PARENT = 0x8000
for _ in range(20):
    pid, _ = syscall("clone", CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while True:
            os.kill(os.getpid(), signal.SIGSTOP)
