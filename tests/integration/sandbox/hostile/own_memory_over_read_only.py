"""Read-only pages of a program, written through /proc/self/mem."""

for line in open("/proc/self/maps"):
    if "libc" in line and "r-x" in line:
        start, path = int(line.split("-")[0], 16), line.split()[-1]
        offset = int(line.split()[2], 16)
        before = open(path, "rb").read()[offset : offset + 16]
        try:
            with open("/proc/self/mem", "r+b", 0) as memory:
                memory.seek(start)
                memory.write(before[::-1])
                memory.seek(start)
                memory.write(before)
        except OSError as error:
            print(error)
        if open(path, "rb").read()[offset : offset + 16] != before:
            escaped("a library of the host has changed")
        break
