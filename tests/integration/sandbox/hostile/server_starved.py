"""A server of the box that gets no turn."""

for change in (
    lambda: os.setpriority(os.PRIO_PROCESS, 1, 19),
    lambda: os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0)),
):
    attempt(change)
for _ in range(40):
    if attempt(os.fork) == 0:
        while True:
            pass
while True:
    pass
