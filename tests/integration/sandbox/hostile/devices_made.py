"""Device files of its own."""

for mode, number in ((0o60666, 0xFE00), (0o60666, 0x800), (0o20666, 0x101), (0o20666, 0x10B)):
    for place in (b"/tmp/d", b"/work/d", b"/dev/d"):
        if syscall("mknodat", -100, place, mode, number)[0] >= 0:
            escaped(f"device {number:#x}")
