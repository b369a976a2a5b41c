"""Output without end."""

block = b"A" * 65536
for _ in range(100_000):
    os.write(1, block)
escaped("6 GB of output")
