"""`bisect-train baseline`: a good version's runs as golden values."""

from __future__ import annotations

import importlib

import rich_click as click

COMMANDS = {
    "save": "run a good version and keep what it shows",
    "list": "list the baselines of a repository",
    "renew": "take another version, after an intended change",
}


class BaselineGroup(click.RichGroup):
    """Imports a command's module when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"bisect_train.cli.baseline_{cmd_name}_command").command
        return command


@click.group("baseline", cls=BaselineGroup)
def command() -> None:
    """A good version's runs as golden values, in `.bisect-train/baselines/NAME.yaml`, which can be committed.

    `run --good baseline:NAME` and `check --against baseline:NAME` take it as the good end: its runs are not made again where
    hardware, interpreter, command and settings are those that it was saved with. The first fresh run of the good end is held
    against it; where that shows something else the baseline does not count, and the report says so.

    \b
    Examples:
      bisect-train baseline save main -- python train.py
      bisect-train run --good baseline:main -- python train.py
      bisect-train check --against baseline:main -- python train.py
      bisect-train baseline renew main --reason "new schedule" --expect HEAD -- python train.py
    """
