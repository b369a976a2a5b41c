"""Calls under the numbers of another binary interface."""

if MACHINE == "x86_64":
    pid = os.fork()
    if pid == 0:
        LIBC.syscall(0x40000000 | 39)
        os._exit(42)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42:
        escaped("x32")
