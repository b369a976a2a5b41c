"""A higher priority, and that of all processes of the user."""

try:
    os.nice(-5)
    escaped("a higher priority")
except OSError as error:
    print(error)
attempt(os.setpriority, os.PRIO_USER, 0, 19)
attempt(os.setpriority, os.PRIO_USER, FACTS["user"], 19)
attempt(os.setpriority, os.PRIO_PROCESS, 1, 19)
attempt(os.sched_setaffinity, FACTS["victim"], {0})
attempt(os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    escaped("real-time")
except OSError as error:
    print(error)
