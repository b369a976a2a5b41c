"""Open files without end."""

n = 0
try:
    while n < 100_000:
        os.open("/dev/null", os.O_RDONLY)
        n += 1
except OSError:
    print("stopped at", n)
if n >= 10_000:
    escaped(f"{n} open files")
