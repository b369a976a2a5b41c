"""Two network namespaces, joined by a link with delay and loss: machines that share no loopback and no abstract socket.

A program carries packets between a TUN device in each: that needs no queueing discipline (netem) of the kernel.
"""

import ctypes
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from fcntl import ioctl
from pathlib import Path

ADDRESSES = ("10.77.0.1", "10.77.0.2")
_DEVICE, _MTU, _READY = "link0", 9000, "ready"
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 1, 0x1000


def find_missing() -> str | None:
    """Return what this machine lacks; None: nothing."""
    if os.geteuid() != 0:
        return "network namespaces are made by root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    return None


@contextmanager
def slow_network(home: Path, delay_seconds: float, loss: float) -> Generator[list[str]]:
    """Have two namespaces during the block, each with the address of the same place in ``ADDRESSES``.

    Args:
        home: of the log.
        delay_seconds: of each packet, one way.
        loss: share of packets that do not arrive, each way.
    """
    from ..waiting import wait_for_exit, wait_until_ready  # noqa: PLC0415  # the program below is in no package

    names = [f"slow{os.getpid()}-{place}" for place in range(2)]
    with ExitStack() as cleanup:
        for name, address in zip(names, ADDRESSES, strict=True):
            _ip("netns", "add", name)
            cleanup.callback(_ip, "netns", "del", name)
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "tuntap", "add", "dev", _DEVICE, "mode", "tun")
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", _DEVICE)
            _ip("-n", name, "link", "set", _DEVICE, "mtu", str(_MTU), "up")
        log = home / "network.log"
        with log.open("wb") as output:
            carrier = subprocess.Popen(
                [sys.executable, __file__, *names, str(delay_seconds), str(loss)], stdout=output, stderr=output
            )
        cleanup.callback(wait_for_exit, carrier, 30, log)
        cleanup.callback(carrier.terminate)
        wait_until_ready(carrier, lambda: _READY in log.read_text(), seconds=30, log=log)
        yield names


@contextmanager
def inside(name: str) -> Generator[None]:
    """Let this thread, and processes that it starts, be in a namespace during the block."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _enter(name)
        yield
    finally:
        _set_namespace(own)
        os.close(own)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _enter(name: str) -> None:
    descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
    try:
        _set_namespace(descriptor)
    finally:
        os.close(descriptor)


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _open_device() -> int:
    device = os.open("/dev/net/tun", os.O_RDWR)
    ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


def _carry(names: Sequence[str], delay_seconds: float, loss: float) -> None:
    """Carry packets until this process is ended."""
    devices: list[int] = []
    for name in names:
        _enter(name)
        devices.append(_open_device())
    sys.stdout.write(_READY)
    sys.stdout.flush()
    dice = random.Random(0)
    on_the_way: list[tuple[float, int, int, bytes]] = []
    """When it arrives, its number, where, and the packet."""
    number = 0
    while True:
        wait = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None  # wait: the link's delay
        for device in select.select(devices, [], [], wait)[0]:
            packet = os.read(device, _MTU)
            if dice.random() >= loss:
                other = devices[1 - devices.index(device)]
                heapq.heappush(on_the_way, (time.monotonic() + delay_seconds, number, other, packet))
                number += 1
        while on_the_way and on_the_way[0][0] <= time.monotonic():  # wait: the link's delay
            _, _, device, packet = heapq.heappop(on_the_way)
            os.write(device, packet)


if __name__ == "__main__":
    _carry(sys.argv[1:3], float(sys.argv[3]), float(sys.argv[4]))
