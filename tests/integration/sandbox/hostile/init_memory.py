"""Memory of the first process of the box, read and written."""

buffer = ctypes.create_string_buffer(64)
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 64)
for pid in (1, os.getppid()):
    for name in ("process_vm_readv", "process_vm_writev"):
        if syscall(name, pid, vector, 1, vector, 1, 0)[0] >= 0:
            escaped(f"{name} of {pid}")
    for how in ("rb", "r+b"):
        if attempt(open, f"/proc/{pid}/mem", how, 0):
            escaped(f"memory of {pid}")
