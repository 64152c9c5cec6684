"""`bisect-train cache`: what is kept on this machine, its size, its health."""

from __future__ import annotations

import importlib

import rich_click as click

COMMANDS = {"ls": "list what is kept", "gc": "remove what nothing needs", "verify": "check what is kept"}


class CacheGroup(click.RichGroup):
    """Imports a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"bisect_train.cli.cache_{cmd_name}_command").command
        return command


@click.group("cache", cls=CacheGroup)
def command() -> None:
    """What is kept on this machine between bisections: results of probes, git objects, checkouts, packages.

    A result is taken over by another bisection only if nothing that its numbers depend on has changed: recorder, interpreter,
    torch and every other installed distribution, hardware, settings that choose kernels. The cache is kept under a limit: 50
    GB, or BISECT_TRAIN_CACHE_LIMIT (such as 20GB).

    \b
    Examples:
      bisect-train cache ls
      bisect-train cache gc --dry-run
      bisect-train cache gc --max-size 20GB --older-than 30d
      bisect-train cache verify --rerun 3
    """
