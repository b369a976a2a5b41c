"""Keys that the kernel keeps for users."""

for ring in (-1, -2, -3, -4, -5):
    if syscall("keyctl", 0, ring, 1)[0] >= 0 or syscall("keyctl", 11, ring, 0, 0)[0] >= 0:
        escaped(f"key ring {ring}")
if syscall("add_key", b"user", b"k", b"v", 1, -3)[0] >= 0 or syscall("request_key", b"user", b"k", None, -3)[0] >= 0:
    escaped("a key")
