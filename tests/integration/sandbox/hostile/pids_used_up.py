"""Process ids, as many as there are in the time: the server must not take one for another."""

end = time.monotonic() + 0.3
while time.monotonic() < end:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
