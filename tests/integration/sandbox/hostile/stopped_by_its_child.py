"""A process that its child stops again and again."""

parent = os.getpid()
if os.fork() == 0:
    while True:
        attempt(os.kill, parent, signal.SIGSTOP)
time.sleep(60)
