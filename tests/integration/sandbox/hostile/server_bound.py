"""The CPUs of the first process, which has the user of its commands where there is only one."""

before = attempt(os.sched_getaffinity, 1)
if attempt(os.sched_setaffinity, 1, {min(os.sched_getaffinity(0))}) is not None or (
    attempt(os.sched_getaffinity, 1) != before
):
    escaped("the first process is bound")
os.sched_setaffinity(0, os.sched_getaffinity(0))  # as numerical libraries do
