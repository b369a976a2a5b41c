"""Calls that no filter sees."""

if syscall("io_uring_setup", 8, ctypes.create_string_buffer(256))[0] >= 0:
    escaped("io_uring")
for number in range(16):
    if (
        syscall("io_uring_register", number, 0, None, 0)[0] >= 0
        or syscall("io_uring_enter", number, 0, 0, 0, None, 0)[0] >= 0
    ):
        escaped("io_uring")
