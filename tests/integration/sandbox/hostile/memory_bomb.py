"""Memory without end in one process."""

blocks = []
try:
    while len(blocks) < 128:
        blocks.append(bytearray(os.urandom(16)) * (1 << 20))
except MemoryError:
    print("stopped at", len(blocks))
if len(blocks) * 16 >= 1024:
    escaped(f"{len(blocks) * 16} MiB")
