"""Calls of 32-bit programs, whose numbers differ."""

import mmap

if MACHINE == "x86_64":
    code = bytes.fromhex("53b81400000031dbcd805bc3")  # push rbx; getpid by int 0x80; pop rbx; ret
    area = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    area.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(area)))
    pid = os.fork()
    if pid == 0:
        os._exit(42 if function() > 0 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42:
        escaped("int 0x80")
