"""Calls that administer the machine."""

for name, arguments in (
    ("reboot", (0xFEE1DEAD, 672274793, 0x89ABCDEF, 0)),
    ("swapon", (b"/tmp/x", 0)),
    ("swapoff", (b"/tmp/x",)),
    ("syslog", (3, ctypes.create_string_buffer(64), 64)),
    ("settimeofday", ((ctypes.c_long * 2)(0, 0), None)),
    ("clock_settime", (0, (ctypes.c_long * 2)(0, 0))),
    ("sethostname", (b"x", 1)),
    ("setdomainname", (b"x", 1)),
    ("acct", (b"/tmp/x",)),
    ("init_module", (ctypes.create_string_buffer(64), 64, b"")),
    ("finit_module", (0, b"", 0)),
    ("delete_module", (b"x", 0)),
    ("kexec_load", (0, 0, None, 0)),
    ("quotactl", (0x800002, None, 0, None)),
    ("personality", (0x40000,)),
    ("vhangup", ()),
    ("iopl", (3,)),
    ("ioperm", (0, 1, 1)),
    ("modify_ldt", (0, ctypes.create_string_buffer(64), 64)),
    ("fanotify_init", (0, 0)),
):
    result, error = syscall(name, *arguments)
    if result >= 0:
        escaped(name)
