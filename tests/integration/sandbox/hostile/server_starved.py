"""A server of the box that gets no turn."""

others = [int(pid) for pid in processes() if int(pid) != os.getpid()]
for pid in {1, os.getppid(), *others}:
    for change in (
        lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        lambda pid=pid: os.sched_setparam(pid, os.sched_param(0)),
    ):
        try:
            change()
            escaped(f"another priority for {pid}")
        except OSError as error:
            print(error)
attempt(os.setpriority, os.PRIO_USER, 0, 19)
for _ in range(40):
    if attempt(os.fork) == 0:
        while True:
            pass
while True:
    pass
