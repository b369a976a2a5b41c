"""Signals to processes of the host, by number."""

for pid in (FACTS["victim"], FACTS["worker"], FACTS["neighbour"]):
    attempt(os.kill, pid, signal.SIGKILL)
    attempt(os.killpg, pid, signal.SIGKILL)
    syscall("tgkill", pid, pid, 9)
    pidfd, _ = syscall("pidfd_open", pid, 0)
    if pidfd >= 0:
        attempt(signal.pidfd_send_signal, pidfd, signal.SIGKILL)
