"""Error output without end, of many processes."""

for _ in range(3):
    os.fork()
block = b"A" * 65536
for _ in range(100_000):
    os.write(2, block)
escaped("output")
