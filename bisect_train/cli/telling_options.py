"""Options for whom a verdict is for beside the terminal: `--markdown`, `--tell`."""

from __future__ import annotations

import os
from typing import Any

import rich_click as click

markdown_option = click.option(
    "--markdown",
    metavar="FILE",
    help="Write the report as Markdown for a pull request; - prints it in place of the report.",
)


def check_addresses(ctx: click.Context, param: click.Parameter, addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return addresses that can be told, for an option. Raises InputError, before anything is run."""
    if addresses:
        from bisect_train.telling import open_messenger

        for address in addresses:
            open_messenger(address, environ=os.environ)
    return addresses


_TELL: Any = click.option(
    "--tell",
    multiple=True,
    metavar="ADDRESS",
    callback=check_addresses,
    help="Tell this place when the answer is confirmed (`bisect-train tell --help`); may be repeated.",
)


def telling_options(function: Any) -> Any:
    """Add both."""
    return markdown_option(_TELL(function))
