"""Who may read and who may write: this page and programs of its people, never pages of other sites.

Two roles. A reader sees all but the grading of tasks; an operator sees that, too, and writes. On this machine alone
every caller is a reader. An operator shows a secret, here as well: agents run on this machine, too, and would reward
themselves.
"""

import hmac
import secrets
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from aiohttp import hdrs, web

from agent_layer.errors import BadInputError
from agent_layer.view.reads.routes import PREFIX

SESSION: Final = f"{PREFIX}/session"
"""Where a browser exchanges the operator's key for a cookie. It changes nothing that is stored."""
METRICS: Final = "/metrics"
"""What alarms measure; it opens to a key of its own, too."""
_BY: Final = "Agent-Layer-By"
"""Header that names the writer. Forms and images of other sites cannot send it."""
_MAX_NAME_LENGTH: Final = 64


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: int
    code: str
    message: str


class Access:
    """Roles of one server.

    Args:
        reader_token: without it, or an operator's secret, nothing is answered; None: only this machine can connect.
        operator_key: of the settings; programs send it as a bearer.
        operator_token: opens the page as operator; None: only the key does.
        takes_writes: False: every write is refused, the operator's as well.
        metrics_key: opens the metrics and nothing else; None: no such key.
    """

    def __init__(
        self,
        *,
        reader_token: str | None,
        operator_key: str | None,
        operator_token: str | None,
        takes_writes: bool,
        metrics_key: str | None = None,
    ) -> None:
        self._metrics_key = metrics_key
        self.takes_writes = takes_writes
        self._reader_token = reader_token
        self._operator_key = operator_key
        self._operator_token = operator_token or secrets.token_urlsafe(24)

    def is_operator(self, request: web.Request) -> bool:
        """Return whether a request shows the operator's key, or the token that stands for it."""
        if _is_same(_cookie(request), self._operator_token):
            return True
        given = _bearer(request)
        return any(_is_same(given, secret) for secret in (self._operator_key, self._operator_token))

    def refuse(self, request: web.Request) -> Refusal | None:
        """Return why a request is refused; None: it may be answered."""
        writes = request.method not in (hdrs.METH_GET, hdrs.METH_HEAD)
        return (
            self._refuse_foreign(request)
            or (self._refuse_write(request) if writes else None)
            or (None if self.is_operator(request) else self._refuse_reader(request, writes=writes))
        )

    def admit(self, request: web.Request) -> web.Response | None:
        """Return the answer that turns a token in the address into a cookie; None: there is none."""
        sent_token = request.query.get("token", "")
        for token in (self._operator_token, self._reader_token):
            if _is_same(sent_token, token):
                answer = web.Response(status=303, headers={hdrs.LOCATION: request.path})
                return _set_cookie(request, answer, sent_token)
        return None

    def open_session(self, request: web.Request) -> web.Response:
        """Return the answer that makes a browser an operator by a cookie, not the key, which ``refuse`` has seen."""
        return _set_cookie(request, web.json_response({"is_operator": True}), self._operator_token)

    def _refuse_foreign(self, request: web.Request) -> Refusal | None:
        if not _has_address(request):
            return Refusal(400, "bad_input", f"header Host {request.host[:80]!r}: expected HOST:PORT; correct it")
        if self._reader_token is None and not _is_this_machine(_read_host(request)):
            return Refusal(
                403, "forbidden", f"header Host {request.host!r}: expected localhost; open the printed address"
            )
        if (origin := request.headers.get(hdrs.ORIGIN)) is not None and _netloc(origin) != request.host:
            return Refusal(403, "forbidden", f"header Origin {origin!r}: expected this page; other sites may not ask")
        if request.path.startswith("/api/") and request.headers.get("Sec-Fetch-Site") in ("cross-site", "same-site"):
            return Refusal(
                403, "forbidden", "header Sec-Fetch-Site: expected a request of this page; others may not ask"
            )
        return None

    def _refuse_write(self, request: web.Request) -> Refusal | None:
        if not self.takes_writes and request.path != SESSION:
            refusal = (
                f"{request.method}: expected GET; this server only reads, 'agent-layer view --allow-writes' writes"
            )
            return Refusal(405, "method", refusal)
        if request.method != hdrs.METH_POST:
            return Refusal(405, "method", f"{request.method}: expected GET or POST; use one of them")
        if request.content_type != "application/json" or not request.headers.get(_BY):
            refusal = f"POST: expected Content-Type application/json and the header {_BY} with your name; send both"
            return Refusal(403, "forbidden", refusal)
        return None

    def _refuse_reader(self, request: web.Request, *, writes: bool) -> Refusal | None:
        if request.path == METRICS and not writes and _is_same(_bearer(request), self._metrics_key):
            return None
        shown = _bearer(request), _cookie(request), "" if writes else request.query.get("token", "")
        is_known = self._reader_token is None or any(_is_same(one, self._reader_token) for one in shown)
        if not is_known and not _is_same(shown[-1], self._operator_token):
            return Refusal(401, "unauthorised", "token: expected the one in the printed address; open that address")
        if writes:
            return Refusal(
                403,
                "forbidden",
                "writing: expected the operator; open the printed address with its token, or send the operator's key"
                " as Authorization: Bearer KEY",
            )
        return None


def writer_name(request: web.Request) -> str:
    """Return the name that a writer gave, unchecked. Raises: BadInputError: it is no name."""
    try:
        name = unquote(request.headers.get(_BY, ""), errors="strict").strip()
    except UnicodeError:
        name = ""
    if name.isprintable() and 0 < len(name) <= _MAX_NAME_LENGTH:
        return name
    raise BadInputError(f"header {_BY}: expected 1 to {_MAX_NAME_LENGTH} characters in one line; send your name")


def _is_same(sent_token: str, secret: str | None) -> bool:
    # what came in a header may hold bytes that are no text
    return bool(secret) and hmac.compare_digest(
        sent_token.encode("utf-8", "surrogateescape"), str(secret).encode("utf-8", "surrogateescape")
    )


def _bearer(request: web.Request) -> str:
    scheme, _, key = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


def _cookie(request: web.Request) -> str:
    return request.cookies.get(_cookie_name(request), "")


def _cookie_name(request: web.Request) -> str:
    """Browsers send cookies to every port of a host: with its port in the name, two servers keep theirs apart."""
    return f"agent_layer_view_{request.url.port}"


def _set_cookie(request: web.Request, answer: web.Response, value: str) -> web.Response:
    answer.set_cookie(_cookie_name(request), value, httponly=True, samesite="Strict", secure=request.secure)
    return answer


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _has_address(request: web.Request) -> bool:
    """Return whether the header Host is one, with a port that there can be."""
    try:
        return bool(request.url.host) and urlsplit(f"//{request.host}").port != 0
    except ValueError:
        return False


def _read_host(request: web.Request) -> str:
    try:
        return urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        return ""


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
