"""Memory that cannot be swapped."""

import mmap

area = mmap.mmap(-1, 64 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(area))
if LIBC.mlock(ctypes.c_void_p(address), ctypes.c_size_t(64 << 20)) == 0:
    escaped("64 MiB locked")
