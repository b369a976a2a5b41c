"""Empty files without end."""

n = 0
try:
    while n < 100_000:
        open(f"/tmp/i{n}", "w").close()
        n += 1
except OSError:
    print("stopped at", n)
if n >= 50_000:
    escaped(f"{n} files")
