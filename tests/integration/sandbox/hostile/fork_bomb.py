"""Processes without end, one after another."""

n = 0
try:
    while n < 5000:
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
        n += 1
except OSError as error:
    print("stopped at", n, error)
if n >= 1000:
    escaped(f"{n} processes")
