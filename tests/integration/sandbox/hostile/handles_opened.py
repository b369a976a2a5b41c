"""Files by their handle, past all paths."""

handle = (ctypes.c_char * 136)()
ctypes.c_uint.from_buffer(handle).value = 128
mount_id = ctypes.c_int()
if syscall("name_to_handle_at", -100, b"/usr/bin/env", handle, ctypes.byref(mount_id), 0)[0] >= 0:
    escaped("a handle")
root = os.open("/usr", os.O_RDONLY)
ctypes.c_uint.from_buffer(handle).value = 8
ctypes.c_int.from_buffer(handle, 4).value = 1
ctypes.c_uint.from_buffer(handle, 8).value = 2
if syscall("open_by_handle_at", root, handle, os.O_RDONLY)[0] >= 0:
    escaped("the root directory of the disk")
