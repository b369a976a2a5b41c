"""Capabilities, asked for again."""

header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(*[0xFFFFFFFF] * 6)
syscall("capset", header, data)
for number in range(41):
    LIBC.prctl(47, 2, number, 0, 0)
    LIBC.prctl(8, 1, 0, 0, 0)
LIBC.prctl(38, 0, 0, 0, 0)
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
for name in ("CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"):
    if int(status[name], 16):
        escaped(f"{name} {status[name]}")
if status["NoNewPrivs"].strip() != "1" or status["Seccomp"].strip() != "2":
    escaped("the filter is off")
