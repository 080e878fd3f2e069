"""Who may ask: by the name of the host, the origin of the page and the token."""

import base64
import hmac
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROTECTION = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(self), microphone=(), geolocation=()",
    "cache-control": "no-store",
}


class Guard:
    """Middleware that refuses strangers and adds protective headers to every answer.

    Without a token a server is reached from its own machine alone, yet any page in a browser there
    can send requests to it: under a foreign name that its owner points here, or across origins.
    Both are refused.

    Args:
        app: The application behind it.
        hosts: Names the server goes by, beside `localhost` and numeric addresses.
        token: What clients must know; `None` lets everybody in.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], token: str | None) -> None:
        self.app, self.hosts, self.token = app, hosts, token
        # Servers on all ports of a host receive its cookies: none of them learns the token.
        self.session = secrets.token_urlsafe(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as ASGI wants it."""

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(PROTECTION)
            await send(message)

        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer: ASGIApp = self._answer(HTTPConnection(scope)) or self.app
        await answer(scope, receive, send_protected)

    def _answer(self, request: HTTPConnection) -> Response | None:
        """Return an answer that needs no application, or `None`."""
        try:
            check_host(request.headers, self.hosts)
            check_origin(request.scope["method"], request.headers)
            return None if self.token is None else self._ask_for(self.token, request)
        except HTTPException as error:
            return refusal(error)

    def _ask_for(self, token: str, request: HTTPConnection) -> Response | None:
        """Admit who knows the token; exchange the one in an opened address for a cookie."""
        cookie = f"invint-{(request.scope.get('server') or ('', 0))[1]}"
        path, method = request.scope["path"], request.scope["method"]
        if (path, method) == ("/", "GET") and _same(request.query_params.get("token", ""), token):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(cookie, self.session, httponly=True, samesite="lax")
            return answer
        known = _same(_offered_token(request.headers), token) or _same(
            request.cookies.get(cookie, ""), self.session
        )
        if known or path == "/health":
            return None
        raise HTTPException(
            401,
            "this server wants its token: open the address that `invint serve` printed, "
            "or send 'Authorization: Bearer TOKEN'",
            {"www-authenticate": 'Basic realm="invint"'},  # browsers ask for the password
        )


def refusal(error: HTTPException) -> Response:
    """Return the answer to a request that was refused: one sentence, as JSON."""
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def check_host(headers: Headers, hosts: frozenset[str]) -> None:
    """Refuse names the server does not go by: another site may have pointed its name here."""
    try:
        name = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        name = ""
    numeric = ":" in name or name.replace(".", "").isdecimal()  # no other site can own these
    if not (numeric or name == "localhost" or name in hosts):
        raise HTTPException(421, "the server does not go by this name; --allowed-host adds one")


def check_origin(method: str, headers: Headers) -> None:
    """Refuse what the page of another site sends."""
    origin = headers.get("origin")
    if origin is None or method in ("GET", "HEAD"):
        return
    _, _, host = origin.lower().partition("://")  # an origin has no path
    if host != headers.get("host", "").lower():
        raise HTTPException(403, "pages of other sites may not ask this server")


def _offered_token(headers: Headers) -> str:
    """Return what `Authorization` holds: a bearer's token, or the password of any user."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value).decode("latin-1").partition(":")[2]
    except ValueError:  # not base64, or not even ASCII
        return ""


def _same(given: str, expected: str) -> bool:
    """Compare in a time that does not say how much was right."""
    return hmac.compare_digest(given.encode(), expected.encode())
