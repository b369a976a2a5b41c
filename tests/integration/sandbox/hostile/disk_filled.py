"""Files without end."""

n = 0
try:
    while n < 1024:
        with open(f"/tmp/f{n}", "wb") as file:
            for _ in range(8):
                file.write(b"x" * (1 << 20))
                n += 1
except OSError as error:
    print("stopped at", n, error)
if n >= 512:
    escaped(f"{n} MiB")
