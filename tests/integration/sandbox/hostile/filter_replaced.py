"""A filter of its own that allows everything."""

program = (ctypes.c_ubyte * 8)(0x06, 0, 0, 0, 0, 0, 0xFF, 0x7F)
described = (ctypes.c_uint64 * 2)(1, ctypes.addressof(program))
syscall("seccomp", 1, 0, described)
LIBC.prctl(22, 0, 0, 0, 0)
LIBC.prctl(22, 2, described, 0, 0)
if syscall("ptrace", 16, 1, 0, 0)[1] != "EPERM" or LIBC.mount(b"x", b"/tmp", b"tmpfs", 0, None) == 0:
    escaped("the filter is gone")
