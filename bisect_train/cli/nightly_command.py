"""`bisect-train nightly`: a branch that is looked after every night; what it knows, and which changes are meant."""

from __future__ import annotations

import importlib

import rich_click as click

COMMANDS = {
    "run": "compare the newest commit with the last good one; bisect if it is worse (as `nightly` alone)",
    "status": "what is known of the watched branches: last good commit, open findings",
    "history": "the nights of a watch: commit, metric, what was found",
    "expect": "call a change intended: it is never blamed again",
}


class NightlyGroup(click.RichGroup):
    """Imports a command's module when it is used; without one of their names it is `run`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"bisect_train.cli.nightly_{cmd_name}_command").command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let `bisect-train nightly --branch main` be `bisect-train nightly run --branch main`."""
        is_help = args[:1] in ([], ["--help"], ["-h"])
        named = args if is_help or args[0] in COMMANDS else ["run", *args]
        return super().parse_args(ctx, named)


@click.group("nightly", cls=NightlyGroup)
def command() -> None:
    """Look after a branch: compare its newest commit with the last good one, every night, and tell people once.

    No regression: the last good commit moves on. A regression: bisected at once, told once, closed when it is fixed. It can be
    started twice, late, or after it was killed: it goes on where it was. `bisect-train nightly run --help` has the options.

    \b
    Examples:
      bisect-train nightly --branch main --recipe train.yaml --tell https://hooks.example.org/training
      bisect-train nightly --branch main --fetch --pinned v1.0 -- python train.py
      bisect-train nightly status
      bisect-train nightly history
      bisect-train nightly expect 3f2a9c1 --reason "smaller model"
    """
