"""What GitHub's errors mean: to be tried again, or for a person; never with the token or an address in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bisect_train.core.errors import NotDelivered
from bisect_train.report.markdown_text import tame
from bisect_train.telling.patience import PASSING, TryLater, read_retry_after

if TYPE_CHECKING:
    from github import GithubException

HINTS = {
    401: "the token is not accepted: GITHUB_TOKEN must hold one that is valid",
    403: "the token may not do this: it needs write access to issues, pull requests or checks",
    404: "no such repository, issue or commit, or the token cannot see it",
    410: "issues are switched off there",
    422: "GitHub takes the request for malformed",
}


def translate(error: GithubException, *, place: str, now_s: float) -> Exception:
    """Return TryLater where it may pass (a limit, a server's fault), else NotDelivered.

    Args:
        error: of PyGithub.
        place: name of the place.
        now_s: seconds since the epoch.
    """
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    said = str(error.data.get("message", "")) if isinstance(error.data, dict) else ""
    if error.status in PASSING or (error.status == 403 and _is_limit(headers, said)):
        reason = "a limit of requests is reached" if error.status in (403, 429) else f"answered {error.status}"
        return TryLater(reason, after_s=_wait_of(headers, now_s))
    message = f"{place}: GitHub answered {error.status}" + (f", {tame(said, limit=200)}" if said else "")
    return NotDelivered(message, hint=HINTS.get(error.status, "nothing is lost: tell it again later"))


def _is_limit(headers: dict[str, str], said: str) -> bool:
    return "retry-after" in headers or headers.get("x-ratelimit-remaining") == "0" or "rate limit" in said.lower()


def _wait_of(headers: dict[str, str], now_s: float) -> float | None:
    """Return the seconds to wait. Source: docs.github.com, "Best practices for using the REST API", rate limits."""
    wait_s = read_retry_after(headers.get("retry-after"), now_s=now_s)
    reset = headers.get("x-ratelimit-reset", "")
    if wait_s is None and headers.get("x-ratelimit-remaining") == "0" and reset.isascii() and reset.isdigit():
        return max(0.0, float(reset) - now_s)
    return wait_s
