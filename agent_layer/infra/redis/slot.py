"""Redis Cluster: all keys of a namespace are in one hash slot, so one node has them all, and clients follow the slot.

A client speaks to one node. It asks for the owner of its slot when it opens, and goes where a node that is not the
owner sends it (``MOVED``). It does not follow ``ASK``: while a slot moves key by key, half of the keys are at another
node, and a script there would take the others for missing. Such a call waits until the slot has moved.
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, TypedDict, cast
from urllib.parse import urlsplit

from redis import Redis
from redis.asyncio.connection import Connection as AsyncConnection, SSLConnection as AsyncSSLConnection
from redis.connection import Connection, SSLConnection
from redis.crc import key_slot
from redis.exceptions import AskError, ResponseError

_PORT = 6379


class Node(NamedTuple):
    """Address of a node."""

    host: str
    port: int


class SlotRoute:
    """Which node the clients of one namespace speak to; all clients of a process share it."""

    def __init__(self, seed: Node) -> None:
        self._nodes = [seed]

    def __deepcopy__(self, _: object) -> "SlotRoute":
        """Return itself: redis-py copies what its connections are made of."""
        return self

    @property
    def node(self) -> Node:
        """Node that new connections go to."""
        return self._nodes[0]

    def learn(self, nodes: Iterable[Node]) -> None:
        """Put nodes before those known so far, the owner of the slot first."""
        self._nodes = list(dict.fromkeys((*nodes, *self._nodes)))

    def follow(self, error: AskError) -> None:
        """Go where a node sends its client; an empty host is the same one."""
        host, port = cast("tuple[str, int]", error.node_addr)  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        self.learn([Node(host or self.node.host, port)])

    def skip(self, node: Node) -> None:
        """Go on to the next node, because this one cannot be reached."""
        if node == self.node:
            self._nodes = [*self._nodes[1:], node]


@cache
def find_route(url: str, namespace: str) -> SlotRoute | None:
    """Return the route of this process to a namespace; None for a unix socket, which is one node."""
    del namespace  # part of the cache's key: each has a slot of its own
    parts = urlsplit(url)
    return SlotRoute(Node(parts.hostname or "localhost", parts.port or _PORT)) if parts.scheme != "unix" else None


def read_owners(redis: Redis, key: str) -> list[Node]:
    """Return the nodes that serve the slot of a key, its owner first, then all others; empty where no cluster says."""
    try:
        shards = cast("list[list[object]]", redis.execute_command("CLUSTER", "SLOTS"))  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
    except ResponseError:  # no cluster, or not for this user: MOVED tells where to go
        return []
    slot = key_slot(key.encode())
    own_first = sorted(shards, key=lambda shard: not cast("int", shard[0]) <= slot <= cast("int", shard[1]))
    found = (cast("list[object]", one) for shard in own_first for one in shard[2:])
    return [Node(cast("bytes", host).decode(), cast("int", port)) for host, port, *_ in found if host and port]


class RouteOptions(TypedDict, total=False):
    """Options of a client that follows its slot."""

    connection_class: type[object]
    route: SlotRoute


def route_options(url: str, route: SlotRoute | None, *, is_async: bool = False) -> RouteOptions:
    """Return what makes a client's connections follow a route; nothing where there is none."""
    if route is None:
        return {}
    is_tls = urlsplit(url).scheme == "rediss"
    plain, tls = (_AsyncRouted, _AsyncRoutedTls) if is_async else (_Routed, _RoutedTls)
    return {"connection_class": tls if is_tls else plain, "route": route}


class _Routed(Connection):
    """A connection to the node that the route names at the moment."""

    def __init__(self, *, route: SlotRoute, **options: object) -> None:
        self._route = route
        super().__init__(**options)  # pyright: ignore[reportArgumentType, reportUnknownMemberType]  # redis-py's own

    def connect(self) -> None:
        """See redis-py; a connection to a node that lost the slot is closed first."""
        if (self.host, self.port) != self._route.node:
            self.disconnect()  # pyright: ignore[reportUnknownMemberType]  # untyped in redis-py
        super().connect()

    def _connect(self):  # noqa: ANN202  # redis-py's own, a socket
        self.host, self.port = node = self._route.node
        try:
            return super()._connect()
        except OSError:
            self._route.skip(node)
            raise


class _RoutedTls(_Routed, SSLConnection):  # pyright: ignore[reportIncompatibleMethodOverride]  # it wraps the other's socket
    """As above, over TLS."""


class _AsyncRouted(AsyncConnection):
    """As ``_Routed``, for asyncio."""

    def __init__(self, *, route: SlotRoute, **options: object) -> None:
        self._route = route
        super().__init__(**options)  # pyright: ignore[reportArgumentType, reportUnknownMemberType]  # redis-py's own

    async def connect(self) -> None:
        """See redis-py; a connection to a node that lost the slot is closed first."""
        if (self.host, self.port) != self._route.node:
            await self.disconnect()
        await super().connect()

    async def _connect(self) -> None:
        self.host, self.port = node = self._route.node
        try:
            await super()._connect()
        except OSError:
            self._route.skip(node)
            raise


class _AsyncRoutedTls(_AsyncRouted, AsyncSSLConnection):
    """As above, over TLS."""
