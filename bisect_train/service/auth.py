"""Who calls: a token, a session of the page that was opened with one, or the one person on this machine.

A token is 32 or more random characters, so that a fast digest is enough to keep it; it is compared in constant time. A session
is a cookie that scripts cannot read and that other sites' pages do not send; what it changes must come from our own origin.
Without any token the service listens on the loopback address alone, and then looks at the Host header, too: a page of another
site whose name was pointed at this machine carries its own name there.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request
from starlette.datastructures import Headers

from bisect_train.core.errors import InputError
from bisect_train.service.problems import Refused
from bisect_train.store.queue_contract import LOCAL_USER, OPERATOR, OWN_NAMES, Queue

COOKIE = "bisect_train_session"
SESSION_S = 12 * 3600.0
MAX_SESSIONS = 1000
SAFE_METHODS = frozenset(["GET", "HEAD", "OPTIONS"])


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls.

    Attributes:
        name: of the user.
        is_admin: whether it may act on what others asked, and send commands of its own where tokens are set.
        is_alone: whether nobody needs a token: the one person on this machine.
        csrf: what a form of the page must carry, "" for a caller that is no browser with a session.
    """

    name: str
    is_admin: bool
    is_alone: bool = False
    csrf: str = ""


def digest_token(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class _Session:
    user: str
    token_digest: str  # what it was opened with: it ends with that token
    csrf: str
    until_s: float


class Doorman:
    """Tells who calls.

    Args:
        queue: has the users.
        tokens: digests of the operator's tokens.
        is_local: whether only this machine can reach the service; otherwise everybody needs a token, whatever is set.
        clock: seconds.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        tokens: tuple[str, ...] = (),
        is_local: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._is_local = is_local
        self._tokens = tokens
        self._clock = clock
        self._guard = threading.Lock()
        self._sessions: dict[str, _Session] = {}
        self._local_csrf = secrets.token_urlsafe(24)

    def is_open(self) -> bool:
        """Return whether nobody needs a token: none is set, and there never was a user; one whose token was taken counts."""
        return self._is_local and not self._tokens and all(user.name in OWN_NAMES for user in self._queue.users())

    def user_of_token(self, token: str) -> str | None:
        """Return whose token it is, or None."""
        if self._is_operators(digest_token(token)):
            return OPERATOR
        found = self._queue.user_of_token(token) if 8 <= len(token) <= 200 else None
        return found.name if found is not None and found.name not in OWN_NAMES else None

    def _is_operators(self, digest: str) -> bool:
        return any(hmac.compare_digest(digest, known) for known in self._tokens)

    def open_session(self, token: str) -> str | None:
        """Return the id of a new session for a token, None for nobody's."""
        user = self.user_of_token(token)
        if user is None:
            return None
        session_id, now = secrets.token_urlsafe(32), self._clock()
        with self._guard:
            for key in [key for key, item in self._sessions.items() if item.until_s < now]:
                del self._sessions[key]
            while len(self._sessions) >= MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            session = _Session(user, digest_token(token), secrets.token_urlsafe(24), now + SESSION_S)
            self._sessions[digest_token(session_id)] = session
        return session_id

    def close_session(self, session_id: str) -> None:
        """Forget a session."""
        with self._guard:
            self._sessions.pop(digest_token(session_id), None)

    def caller(self, request: Request) -> Caller | None:
        """Return who calls, None where a token is needed and none that is good was sent.

        Raises:
            Refused: a session's request that changes something and does not come from our own pages.
        """
        header = request.headers.get("authorization", "")
        if header:
            scheme, _, token = header.partition(" ")
            return self._known(self.user_of_token(token.strip())) if scheme.lower() == "bearer" else None
        if self.is_open():
            return Caller(LOCAL_USER, is_admin=True, is_alone=True, csrf=self._local_csrf)
        cookie = request.cookies.get(COOKIE, "")
        with self._guard:
            session = self._sessions.get(digest_token(cookie)) if cookie else None
        if session is None or session.until_s < self._clock():
            return None
        if request.method not in SAFE_METHODS and not is_same_origin(request.headers):
            raise Refused(403, "this request does not come from a page of this service")
        return self._known(session.user, csrf=session.csrf, digest=session.token_digest)

    def caller_of(self, name: str) -> Caller:
        """Return a user by name, one who was let in already. Raises Refused where it is nobody any more."""
        found = Caller(LOCAL_USER, is_admin=True, is_alone=True) if name == LOCAL_USER and self.is_open() else self._known(name)
        if found is None:
            raise Refused(401, "this user may do nothing any more")
        return found

    def _known(self, name: str | None, *, csrf: str = "", digest: str | None = None) -> Caller | None:
        """Return a user who may call; only with the token of this digest where one is given."""
        if name is None:
            return None
        if name == OPERATOR:
            return Caller(OPERATOR, is_admin=True, csrf=csrf) if digest is None or self._is_operators(digest) else None
        try:
            user = self._queue.user(name)
        except InputError:
            return None
        if digest is not None and not hmac.compare_digest(digest, user.token_hash):
            return None
        return Caller(user.name, user.is_admin, csrf=csrf) if user.has_token else None


def has_users(queue: Queue) -> bool:
    """Return whether anybody has a token."""
    return any(user.has_token and user.name not in OWN_NAMES for user in queue.users())


def ensure_user(queue: Queue, name: str) -> None:
    """Make the entry of a user who is known without a token of the store's: the local person, the operator."""
    if name in OWN_NAMES and all(user.name != name for user in queue.users()):
        queue.ensure_own_user(name)


def is_same_origin(headers: Headers) -> bool:
    """Return whether a browser says that a request comes from a page of the very address it goes to; no word is a no."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") == "same-origin"
    return origin.partition("://")[2].lower() == headers.get("host", "").lower() != ""


def caller(request: Request) -> Caller:
    """Return who calls; a route's dependency. Raises Refused with status 401."""
    found: Caller | None = request.app.state.parts.doorman.caller(request)
    if found is None:
        raise Refused(
            401,
            "this service needs a token",
            hint="send it as `Authorization: Bearer TOKEN`, or log in on the page",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return found


def admin(request: Request) -> Caller:
    """Return who calls, an administrator; a route's dependency. Raises Refused with status 401 or 403."""
    found = caller(request)
    if not found.is_admin:
        raise Refused(403, "only an administrator may do this")
    return found
