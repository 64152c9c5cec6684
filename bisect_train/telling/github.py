"""GitHub by its official API, through PyGithub: an issue, a comment on an issue or pull request, or a check-run.

One message a finding: it carries the finding's id where readers do not see it (a comment of HTML at the start of the body,
the external id of a check-run), is found again by it, and edited. Only messages that this token's own user wrote are taken
for ours, so nobody can put the mark into a comment of their own and have it overwritten. Find-or-create is one call, so
trying it again after an answer that was lost makes no second message.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import requests

from bisect_train.core.errors import InputError, NotDelivered
from bisect_train.report.markdown_text import LIMIT, width
from bisect_train.telling.github_errors import translate
from bisect_train.telling.message import Message
from bisect_train.telling.messenger import LEFT_OUT, Receipt
from bisect_train.telling.patience import TryLater
from bisect_train.telling.webhook import say_failure

if TYPE_CHECKING:
    from github import Github
    from github.Issue import Issue
    from github.NamedUser import NamedUser
    from github.Repository import Repository

INSTALL_HINT = "pip install 'bisect-train[github]'"
API_URL = "https://api.github.com"
LABEL = "bisect-train"
CHECK_NAME = "bisect-train"
TIMEOUT_S = 15
GONE = (404, 410)  # statuses of an issue that was deleted
NUM_UNLABELLED = 300  # issues looked through where none has the label: a token without the right to label loses it
TEXT_LIMIT = 65_535  # of a check-run's summary. Source: docs.github.com, "Create a check run"
_NOREPLY = re.compile(r"(?:\d+\+)?([A-Za-z0-9](?:[A-Za-z0-9-]{0,38}))@users\.noreply\.github\.com")


@dataclass(frozen=True, slots=True)
class Access:
    """How GitHub is reached: a token, the address of its API, seconds since the epoch; the token is never shown."""

    token: str
    api_url: str = API_URL
    clock: Callable[[], float] = time.time
    timeout_s: int = TIMEOUT_S

    def __repr__(self) -> str:
        return f"Access({urlsplit(self.api_url).hostname})"


def mark_of(finding: str) -> str:
    """Return what marks a message of ours: readers do not see it, and no text of others can hold it, since `<` is escaped."""
    return f"<!-- {LABEL} finding={finding} -->"


class _Place:
    """What the three places share: the client, whose messages are ours, the errors.

    Raises:
        InputError: PyGithub is not installed.
    """

    can_edit = True

    def __init__(self, name: str, repository: str, access: Access) -> None:
        self.name = name
        self._repository = repository
        self._access = access
        try:
            import github
        except ModuleNotFoundError:
            raise InputError("telling GitHub needs PyGithub", hint=INSTALL_HINT) from None
        self._client: Github = github.Github(
            auth=github.Auth.Token(access.token),
            base_url=access.api_url,
            timeout=access.timeout_s,
            retry=None,  # `Patient` tries the whole of finding and editing again
            seconds_between_requests=0,
            seconds_between_writes=0,
            per_page=100,
        )

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        """Create the message of this finding, or edit it. Raises TryLater, NotDelivered."""
        with self._translated():
            return self._tell(self._client.get_repo(self._repository), message, earlier)

    def _tell(self, repo: Repository, message: Message, earlier: Receipt | None) -> Receipt:
        raise NotImplementedError

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import github

        try:
            yield
        except github.GithubException as error:
            raise translate(error, place=self.name, now_s=self._access.clock()) from None
        except requests.RequestException as error:
            raise TryLater(say_failure(error)) from None

    def _own_login(self) -> str | None:
        """Return the login of the token's user; None for a token of an app, such as that of a workflow."""
        import github

        try:
            return self._client.get_user().login
        except github.GithubException as error:
            if error.status in (403, 404):
                return None
            raise

    def _first_of_ours(self, items: Iterable[Any], mark: str) -> Any | None:
        """Return the first issue or comment that begins with the mark and that our user, or an app, wrote."""
        marked = [item for item in items if (item.body or "").lstrip().startswith(mark)]
        if not marked:
            return None
        login = self._own_login()
        return next((item for item in marked if item.user is not None and _is_written_by(item.user, login)), None)

    def _body(self, repo: Repository, message: Message) -> str:
        body = f"{mark_of(message.finding)}\n{message.markdown}{self._call_authors(repo, message)}"
        if width(body) > LIMIT:
            raise NotDelivered(f"{self.name}: the message has {width(body)} characters, GitHub takes {LIMIT}")
        return body

    def _call_authors(self, repo: Repository, message: Message) -> str:
        """Return a line that calls the authors of blamed commits by their logins, where GitHub knows them."""
        import github

        called = []
        for author in message.authors:
            found = _NOREPLY.fullmatch(author.email)
            login = found[1] if found else ""
            if not login:
                try:
                    user = repo.get_commit(author.commit).author
                    login = user.login if user is not None else ""
                except github.UnknownObjectException:
                    login = ""
            called += [f"@{login} (author of {author.commit[:8]})"] if login else []
        return f"\n\n{', '.join(called)}" if called else ""


class GithubComment(_Place):
    """One comment a finding on an issue or a pull request.

    Args:
        repository: owner/name.
        number: of the issue or pull request.
        access: token and API.
    """

    def __init__(self, repository: str, number: int, access: Access) -> None:
        super().__init__(f"comment on {repository}#{number}", repository, access)
        self._number = number

    def _tell(self, repo: Repository, message: Message, earlier: Receipt | None) -> Receipt:
        issue = repo.get_issue(self._number)
        found = self._first_of_ours(issue.get_comments(), mark_of(message.finding))
        if found is None and message.is_closing:
            return Receipt(LEFT_OUT, reason="there is no message that it could close")
        body = self._body(repo, message)
        if found is None:
            return Receipt("created", place=issue.create_comment(body).html_url)
        if found.body != body:
            found.edit(body)
        return Receipt("edited", place=found.html_url)


class GithubIssue(_Place):
    """One issue a finding: opened, edited, closed when it is over, opened again when it is back.

    Args:
        repository: owner/name.
        access: token and API.
    """

    def __init__(self, repository: str, access: Access) -> None:
        super().__init__(f"issue in {repository}", repository, access)

    def _tell(self, repo: Repository, message: Message, earlier: Receipt | None) -> Receipt:
        found = self._find(repo, message, earlier)
        if found is None and message.is_closing:
            return Receipt(LEFT_OUT, reason="there is no message that it could close")
        body = self._body(repo, message)
        if found is None:
            made = repo.create_issue(title=message.title, body=body, labels=[LABEL])
            return Receipt("created", place=made.html_url)
        if message.is_closing:
            reason = "completed" if message.state == "closed" else "not_planned"
            found.edit(title=message.title, body=body, state="closed", state_reason=reason)
        else:
            found.edit(title=message.title, body=body, state="open")
        return Receipt("edited", place=found.html_url)

    def _find(self, repo: Repository, message: Message, earlier: Receipt | None) -> Issue | None:
        """Return the finding's issue: the one of the receipt, one with our label, one of the newest."""
        mark = mark_of(message.finding)
        number = _number_of(earlier)
        known = _known_issue(repo, number) if number else []
        labelled = repo.get_issues(state="all", labels=[LABEL])
        newest = repo.get_issues(state="all", sort="created", direction="desc")
        searches: tuple[Iterable[Issue], ...] = (known, labelled, islice(newest, NUM_UNLABELLED))
        return next((found for items in searches if (found := self._first_of_ours(items, mark)) is not None), None)


def _known_issue(repo: Repository, number: int) -> list[Issue]:
    """Return the issue, [] where it was deleted or moved away."""
    import github

    try:
        return [repo.get_issue(number)]
    except github.GithubException as error:
        if error.status in GONE:
            return []
        raise


def _is_written_by(user: NamedUser, login: str | None) -> bool:
    """Return whether a user has this login; without one, whether it is an app."""
    return user.login == login if login else user.type == "Bot"


def _number_of(earlier: Receipt | None) -> int | None:
    last = earlier.place.rpartition("/")[2] if earlier else ""
    return int(last) if last.isdigit() else None


class GithubCheck(_Place):
    """One check-run a finding, on the commit that was found to be worse; it needs the token of an app, as a workflow has it.

    Args:
        repository: owner/name.
        commit: 40 hex digits, or "" for the message's own.
        access: token and API.
    """

    def __init__(self, repository: str, commit: str, access: Access) -> None:
        super().__init__(f"check-run in {repository}", repository, access)
        self._commit = commit

    def _tell(self, repo: Repository, message: Message, earlier: Receipt | None) -> Receipt:
        commit = self._commit or message.commit
        if not commit:
            raise NotDelivered(f"{self.name}: the finding names no commit", hint="name one: github-check:OWNER/NAME@COMMIT")
        output: dict[str, Any] = {"title": message.title, "summary": message.markdown[:TEXT_LIMIT]}
        runs = repo.get_commit(commit).get_check_runs(check_name=CHECK_NAME, filter="all")
        found = next((run for run in runs if run.external_id == message.finding), None)
        if found is not None:
            found.edit(status="completed", conclusion=message.conclusion, output=output)
            return Receipt("edited", place=found.html_url or "")
        if message.is_closing and message.conclusion != "success":
            return Receipt(LEFT_OUT, reason="there is no message that it could close")
        made = repo.create_check_run(
            CHECK_NAME,
            commit,
            external_id=message.finding,
            status="completed",
            conclusion=message.conclusion,
            output=output,
        )
        return Receipt("created", place=made.html_url or "")
