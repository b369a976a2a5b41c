"""Anonymous files, which no disk quota counts."""

n = 0
files = []
try:
    while n < 1024:
        if n % 16 == 0:
            files.append(os.memfd_create("x"))
        os.write(files[-1], b"x" * (1 << 20))
        n += 1
except OSError as error:
    print("stopped at", n, error)
if n >= 1024:
    escaped(f"{n} MiB")
