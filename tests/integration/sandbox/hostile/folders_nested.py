"""Folders so deep that no path reaches them."""

n = 0
try:
    while n < 50_000:
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
        n += 1
except OSError:
    print("stopped at", n)
if n >= 20_000:
    escaped(f"{n} folders")
