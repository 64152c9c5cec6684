"""Slack, e-mail and the many other places that apprise knows: one message when something is found, one when it is over.

None of them can edit what was sent, as an incoming webhook of Slack cannot. A place's address holds its tokens, so neither the
address nor what apprise says about it is shown as it is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from bisect_train.core.errors import InputError
from bisect_train.core.secrets import HIDDEN
from bisect_train.report.markdown_text import one_line
from bisect_train.telling.message import Message
from bisect_train.telling.messenger import Receipt, skip_of
from bisect_train.telling.patience import TryLater

INSTALL_HINT = "pip install 'bisect-train[telling]'"
NATIVE_HOSTS = ("hooks.slack.com", "discord.com", "discordapp.com", "webhook.office.com", "chat.googleapis.com")
"""Hosts of https addresses that want their own JSON; apprise has it."""
_DULL = frozenset(["https", "http", "true", "false", "yes", "no", "localhost"])


class Chat:
    """One place that apprise can tell.

    Args:
        url: of apprise, such as `slack://...` or `mailto://...`; or the https address of a chat's incoming webhook.

    Raises:
        InputError: apprise is not installed, or does not know such an address.
    """

    can_edit = False

    def __init__(self, url: str) -> None:
        try:
            import apprise
        except ModuleNotFoundError:
            raise InputError("telling by chat or e-mail needs apprise", hint=INSTALL_HINT) from None
        self._asset = apprise.AppriseAsset(app_id="bisect-train", app_desc="bisect-train", async_mode=False)
        self._url = url
        scheme = url.partition("://")[0]
        with _captured():
            try:
                place: Any = self._open()
            except ValueError:  # half characters, as a variable has them that is no UTF-8
                place = None
        if place is None:
            hint = "https://github.com/caronc/apprise/wiki lists them"
            raise InputError(f"not an address that apprise knows, or a part of it is missing: {scheme}://...", hint=hint)
        self.name = f"{place.service_name} ({scheme})"

    def _open(self) -> Any:
        """Return apprise's own object; a new one for each message, since an old one holds the next message up."""
        import apprise

        return apprise.Apprise.instantiate(self._url, asset=self._asset)

    def send(self, message: Message, *, earlier: Receipt | None = None) -> Receipt:
        """Tell it. Raises TryLater."""
        skipped = skip_of(message, earlier, can_edit=False)
        if skipped is not None:
            return skipped
        import apprise

        with _captured() as said:
            crowd = apprise.Apprise(self._open(), asset=self._asset)
            is_sent = crowd.notify(
                title=message.title,
                body=message.text,
                notify_type=_type_of(message),
                body_format=apprise.NotifyFormat.TEXT,
            )
        if not is_sent:
            raise TryLater(hide_parts("; ".join(said[-2:]), self._url) or "apprise could not send it")
        return Receipt("sent")


def _type_of(message: Message) -> Any:
    import apprise

    if message.is_closing:
        return apprise.NotifyType.SUCCESS
    return apprise.NotifyType.FAILURE if message.conclusion == "failure" else apprise.NotifyType.WARNING


class _Keeper(logging.Handler):
    """Keeps warnings in place of printing them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.said.append(record.getMessage())


@contextmanager
def _captured() -> Iterator[list[str]]:
    """Keep what apprise logs to ourselves: it may show a token."""
    logger, keeper = logging.getLogger("apprise"), _Keeper()
    did_propagate = logger.propagate
    logger.addHandler(keeper)
    logger.propagate = False
    try:
        yield keeper.said
    finally:
        logger.propagate = did_propagate
        logger.removeHandler(keeper)


def hide_parts(text: str, url: str) -> str:
    """Return text in which every part of an address that could be a secret is hidden."""
    parts = {part for piece in re.split(r"[/:@?&=,\s]+", url) for part in (piece, unquote(piece))}
    for part in sorted(parts - _DULL, key=len, reverse=True):
        if len(part) > 3:
            text = text.replace(part, HIDDEN)
    return one_line(text, limit=200)
