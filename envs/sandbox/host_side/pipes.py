"""Pipes to and from a child: input that is written as it is read, output that is read up to a limit."""

import asyncio
import os

_CHUNK = 1 << 16


class OutputCollector:
    """Reads standard output and standard error of a child, both together up to a limit."""

    def __init__(self, max_bytes: int) -> None:
        self.outputs = bytearray(), bytearray()
        self._left = max_bytes
        self._loop = asyncio.get_running_loop()
        self.overflow: asyncio.Future[None] = self._loop.create_future()
        """Done as soon as there is more than the limit."""
        pipes = [os.pipe(), os.pipe()]
        self._readers: dict[int, bytearray] = {}
        self.writers = [writer for _, writer in pipes]
        for (reader, _), output in zip(pipes, self.outputs, strict=True):
            os.set_blocking(reader, False)
            self._readers[reader] = output
            self._loop.add_reader(reader, self._read, reader)

    def close_writers(self) -> None:
        """Close the child's ends, which it has got."""
        while self.writers:
            os.close(self.writers.pop())

    def drain(self) -> None:
        """Read what is there without waiting."""
        for reader in list(self._readers):
            while reader in self._readers and not self.overflow.done() and self._read(reader):
                pass

    def close(self) -> None:
        """Close all ends that are still open."""
        self.close_writers()
        for reader in list(self._readers):
            self._end(reader)

    def _read(self, reader: int) -> bool:
        """Read once; False: there was nothing."""
        try:
            chunk = os.read(reader, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self._end(reader)
            return False
        self._readers[reader] += chunk[: self._left]
        if len(chunk) > self._left and not self.overflow.done():
            self.overflow.set_result(None)
            self._loop.remove_reader(reader)
        self._left = max(0, self._left - len(chunk))
        return True

    def _end(self, reader: int) -> None:
        self._loop.remove_reader(reader)
        del self._readers[reader]
        os.close(reader)


class InputFeeder:
    """Writes bytes into the standard input of a child, as fast as the child reads them."""

    def __init__(self, data: bytes) -> None:
        self._rest = memoryview(data)
        self._loop = asyncio.get_running_loop()
        self._writer: int | None = None
        if not data:
            self.reader = os.open(os.devnull, os.O_RDONLY)
            return
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._loop.add_writer(self._writer, self._write)

    def close_reader(self) -> None:
        """Close the child's end, which it has got."""
        os.close(self.reader)

    def close(self) -> None:
        """Stop writing."""
        if self._writer is not None:
            self._loop.remove_writer(self._writer)
            os.close(self._writer)
            self._writer = None

    def _write(self) -> None:
        if self._writer is None:
            return
        try:
            written = os.write(self._writer, self._rest[:_CHUNK])
        except BlockingIOError:
            return
        except BrokenPipeError:  # the child does not read it
            self.close()
            return
        self._rest = self._rest[written:]
        if not self._rest:
            self.close()
