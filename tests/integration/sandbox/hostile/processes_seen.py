"""Processes of the host."""

found = processes()
if str(FACTS["victim"]) in found and len(found) > 40:
    escaped(f"{len(found)} processes")
for pid in (FACTS["victim"], FACTS["worker"]):
    if b"victim" in (attempt(read_bytes, f"/proc/{pid}/cmdline") or b""):
        escaped("the command line of a process of the host")
