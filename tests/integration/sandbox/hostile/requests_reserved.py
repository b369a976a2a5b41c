"""Requests of asynchronous input and output: the machine has 65536 for all its users."""

context = ctypes.c_ulong(0)
if syscall("io_setup", 1024, ctypes.byref(context))[0] >= 0:
    escaped("1024 requests of the machine are reserved")
