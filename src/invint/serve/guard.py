"""What stands before the application: hosts, tokens, the size of bodies, headers of answers."""

import asyncio
import hmac
import ipaddress
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from invint.serve.limits import Gate, Limits, RequestError

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
PUBLIC = ("/health", "/style.css", "/icon.svg")  # need no token: they say nothing
DRAINED = 4  # times the largest body: what is still read, and dropped, of one that is too large


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        hosts: Names the server goes by, beside `localhost` and addresses in digits.
        token: What clients must know; none lets everybody in.
        token_page: Shown to browsers that have no token yet.
        cookie: Name of the cookie a browser gets for the token.
        session: Value of that cookie.
    """

    hosts: frozenset[str] = frozenset()
    token: str | None = None
    token_page: str = ""
    cookie: str = "invint"
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))


class Guard:
    """Answers what must not reach the application, and bounds what does.

    Args:
        app: The application.
        access: Who may ask.
        limits: How much.
        gate: Counts requests with a body from before it is read until the answer is there.
    """

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, gate: Gate) -> None:
        self.app, self.access, self.limits, self.gate = app, access, limits, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI wants it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _with_headers(send)
        try:
            answer = self._answer(scope)
            if answer is None:
                await self._admit(scope, receive, send)
                return
        except RequestError as refused:
            await _drain(receive, self.limits)
            answer = refusal(refused)
        await answer(scope, receive, send)

    def _answer(self, scope: Scope) -> Response | None:
        """Return an answer that needs no application, or nothing."""
        headers = Headers(scope=scope)
        check_host(headers.get("host", ""), self.access.hosts)
        check_origin(scope["method"], headers)
        if self.access.token is None or scope["path"] in PUBLIC:
            return None
        if _knows_token(headers, self.access):
            return None
        return self._welcome(scope)

    def _welcome(self, scope: Scope) -> Response:
        """Give a browser its cookie for the right token, or ask for the token."""
        if scope["path"] != "/" or scope["method"] != "GET":
            raise RequestError(401, "this server wants its token: 'Authorization: Bearer TOKEN'")
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not _same(given, self.access.token or ""):
            return HTMLResponse(self.access.token_page, 401, {"www-authenticate": "Bearer"})
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self.access.cookie, self.access.session, httponly=True, samesite="lax", path="/"
        )
        return answer

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        with self.gate.place():
            body = await _body(scope, receive, self.limits)
            if body is not None:
                await self.app(scope, _replay(body, receive), send)


def refusal(refused: RequestError) -> Response:
    """Return the answer to a request that was refused."""
    headers = {503: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}}
    content = json.dumps({"error": refused.message})
    return Response(
        content, refused.status, headers.get(refused.status), media_type="application/json"
    )


def check_host(host: str, names: frozenset[str]) -> None:
    """Refuse names the server does not go by: another site may have pointed its name here."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        name = ""
    if name == "localhost" or name in names or _is_address(name):
        return
    raise RequestError(421, "the server does not go by this name; --allowed-host adds one")


def check_origin(method: str, headers: Headers) -> None:
    """Refuse what the page of another site sends."""
    origin = headers.get("origin")
    if origin is None or method in ("GET", "HEAD"):
        return
    if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
        raise RequestError(403, "pages of other sites may not ask this server")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _knows_token(headers: Headers, access: Access) -> bool:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return _same(given.strip(), access.token or "")
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(access.cookie)
    except CookieError:
        return False
    return cookie is not None and _same(cookie.value, access.session)


def _same(given: str, expected: str) -> bool:
    """Compare in a time that does not say how much was right."""
    return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
        await send(message)

    return send_with_headers


async def _chunks(receive: Receive) -> AsyncIterator[bytes | None]:
    """Yield a body as it arrives; nothing if the client has gone."""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            yield None
            return
        yield message.get("body", b"")
        more = message.get("more_body", False)


async def _body(scope: Scope, receive: Receive, limits: Limits) -> bytes | None:
    """Read a body, counting what comes and not trusting what was announced."""
    announced = Headers(scope=scope).get("content-length", "0")
    if announced.isdecimal() and int(announced) > limits.upload_bytes:
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.upload_seconds):
            async for chunk in _chunks(receive):
                if chunk is None:
                    return None
                if len(body) + len(chunk) > limits.upload_bytes:
                    raise _too_large(limits)
                body += chunk
    except TimeoutError as error:
        raise RequestError(408, f"the body took longer than {limits.upload_seconds:g} s") from error
    return bytes(body)


def _too_large(limits: Limits) -> RequestError:
    return RequestError(413, f"a request has at most {limits.upload_bytes / 2**20:g} MiB")


async def _drain(receive: Receive, limits: Limits) -> None:
    """Drop the rest of a body, within bounds, so that the client gets to read the answer."""
    left = DRAINED * limits.upload_bytes
    try:
        async with asyncio.timeout(min(2.0, limits.upload_seconds)):
            async for chunk in _chunks(receive):
                left -= len(chunk or b"")
                if left < 0:
                    return
    except TimeoutError:
        return


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body at once, then what comes after it."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay
