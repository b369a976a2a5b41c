"""The first process of the box, traced."""

for pid in (1, os.getppid(), FACTS["victim"]):
    for request in (16, 0x4206):
        if syscall("ptrace", request, pid, 0, 0)[0] >= 0:
            escaped(f"traces {pid}")
