"""Pages that a forked process could have inherited."""

for line in open("/proc/self/maps").read().splitlines():
    span, rights = line.split()[:2]
    if "r" not in rights or "[v" in line:
        continue
    start, end = (int(one, 16) for one in span.split("-"))
    with open("/proc/self/mem", "rb", 0) as memory:
        try:
            memory.seek(start)
            page = memory.read(end - start)
        except (OSError, OverflowError):
            continue
    if is_secret(page):
        escaped(f"the secret is in memory: {line}")
