"""Dead children that are never collected."""

n = 0
try:
    while n < 5000:
        if os.fork() == 0:
            os._exit(0)
        n += 1
except OSError:
    print("stopped at", n)
if n >= 1000:
    escaped(f"{n} zombies")
