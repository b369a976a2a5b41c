"""Children of the server itself, which end in every way and leave children behind."""

CLONE_PARENT = 0x8000
for number in range(30):
    pid, _ = syscall("clone", CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        if number % 3 == 0 and os.fork() == 0:
            os.setsid()
            time.sleep(60)
        os.kill(os.getpid(), signal.SIGKILL if number % 2 else signal.SIGABRT)
