"""Input typed into a terminal."""

import fcntl

for number in (0, 1, 2):
    for request in (0x5412, 0x541C, 0x1_0000_5412):
        try:
            LIBC.ioctl.restype = ctypes.c_int
            if LIBC.ioctl(number, ctypes.c_ulong(request), b"x") == 0:
                escaped(f"ioctl {request:#x}")
        except OSError as error:
            print(error)
if attempt(os.open, "/dev/tty", os.O_RDWR) is not None:
    escaped("a terminal")
