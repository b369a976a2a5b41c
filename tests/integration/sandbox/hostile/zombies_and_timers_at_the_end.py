"""Timers, zombies and stopped processes that outlive the command."""

signal.setitimer(signal.ITIMER_REAL, 30)
for number in range(12):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.alarm(30)
        if number % 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            time.sleep(0.01)
os._exit(7)
