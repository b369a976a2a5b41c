"""Shared memory that belongs to no single process."""

import mmap

areas = []
try:
    for _ in range(16):
        area = mmap.mmap(-1, 64 << 20)
        for at in range(0, 64 << 20, 4096):
            area[at] = 1
        areas.append(area)
except OSError as error:
    print(error)
if len(areas) * 64 >= 1024:
    escaped("1 GiB of shared memory")
