"""What the kernel tells about the machine."""

for path in (
    "kcore",
    "kmsg",
    "keys",
    "kpageflags",
    "timer_list",
    "sched_debug",
    "slabinfo",
    "vmallocinfo",
    "iomem",
    "1/stack",
):
    if attempt(read_bytes, f"/proc/{path}", 64):
        escaped(path)
symbols = attempt(read_bytes, "/proc/kallsyms", 4096) or b""
if symbols and any(line.split()[0].strip(b"0") for line in symbols.splitlines()[:-1]):
    escaped("addresses of the kernel")
