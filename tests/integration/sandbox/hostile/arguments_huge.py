"""A program with as many arguments as the kernel takes, again and again."""

n = 0
try:
    while n < 50:
        os.posix_spawn("/bin/true", ["true"] + ["x" * 100_000] * 20, {})
        n += 1
except OSError as error:
    print("stopped at", n, error)
