"""Memory of every other process that can be seen."""

for pid in (*processes(), "1", str(os.getppid()), str(FACTS["victim"]), str(FACTS["worker"])):
    if pid == str(os.getpid()):
        continue
    for name in ("mem", "maps", "environ", "auxv", "syscall", "stack", "pagemap"):
        if attempt(read_bytes, f"/proc/{pid}/{name}", 16):
            escaped(f"/proc/{pid}/{name}")
