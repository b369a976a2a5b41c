"""The first process of the box, killed."""

for pid in (1, os.getppid()):
    for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGSEGV, signal.SIGCHLD):
        attempt(os.kill, pid, number)
time.sleep(0.2)
print("alive")
