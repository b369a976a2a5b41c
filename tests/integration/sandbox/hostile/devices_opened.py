"""Devices of the host."""

names = (
    "mem",
    "kmem",
    "port",
    "kmsg",
    "vda",
    "sda",
    "nvme0n1",
    "kvm",
    "fuse",
    "net/tun",
    "ptmx",
    "tty",
    "console",
    "loop-control",
)
for name in (
    *names,
    "loop0",
    "vsock",
    "vhost-net",
    "userfaultfd",
    "uinput",
    "mapper/control",
    "pts/0",
    "tty0",
    "rtc0",
    "hwrng",
):
    if attempt(os.open, f"/dev/{name}", os.O_RDONLY) is not None:
        escaped(name)
