"""What the command line prints goes through here: a commit's subject or a log line must not give the terminal orders.

rich takes bells and carriage returns out of text, but lets escape sequences through.
"""

from __future__ import annotations

from collections.abc import Iterable

import rich_click as click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from bisect_train.core.shown import printable


class SafeConsole(Console):
    """A console that shows control characters of texts instead of sending them; its own colours stay."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of a renderable, each of them printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def say(text: str, *, err: bool = False) -> None:
    """Print a line on stdout, or on stderr, with its control characters shown."""
    click.echo(printable(text), err=err)
