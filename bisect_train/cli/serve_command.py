"""`bisect-train serve`: bisections over HTTP, with a queue, users and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import rich_click as click

from bisect_train.cli.desk import open_desk
from bisect_train.cli.serve_parts import coordinate_command, user_group
from bisect_train.core.errors import InputError

WITHOUT = "the service needs packages that are not installed"


@click.group("serve", invoke_without_command=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; others than loopback need a user.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 takes any that is free.")
@click.option(
    "--repo", "repos", multiple=True, metavar="[NAME=]DIR", help="A repository that may be asked about [default: here]."
)
@click.option("--recipe", "recipes", multiple=True, metavar="[NAME=]FILE|PRESET", help="A recipe that a request may name.")
@click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Tokens of an administrator."
)
@click.option("--allow-commands", is_flag=True, help="Without users: let requests bring a training command of their own.")
@click.option("--max-running", type=click.IntRange(1, 100), default=2, show_default=True, help="Bisections at a time.")
@click.option("--address", default="", metavar="RAY", help="Ray cluster of all bisections [default: one that is started].")
@click.option("--cpus", type=click.IntRange(min=1), metavar="N", help="Logical CPUs of the Ray that is started.")
@click.option("--lease-s", type=click.FloatRange(1.0, 600.0), default=30.0, hidden=True)
@click.option("--python", metavar="PATH", help="Interpreter that `python` in commands stands for.")
def command(**values: Any) -> int:
    """Run bisections for others: a queue, a REST interface, and a page to watch them.

    It listens on this machine alone unless somebody has a token (`serve user add`). Requests name repositories and recipes of
    the lists given here; a training command of their own only administrators may send.

    \b
    Examples:
      bisect-train serve
      bisect-train serve user add anna --admin
      bisect-train serve --host 0.0.0.0 --repo gpt=/srv/gpt --recipe nightly=/srv/nightly.yaml
    """
    ctx = click.get_current_context()
    if ctx is None or ctx.invoked_subcommand is not None:
        return 0
    try:
        from bisect_train.cli.serving import serve
        from bisect_train.cli.serving_settings import settings_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "uvicorn", "prometheus_client", "starlette"):
            raise
        raise InputError(f"{WITHOUT}: {error.name}", hint="pip install 'bisect-train[service]'") from None
    with open_desk() as desk:
        serve(settings_of(values, home=desk.home), desk)
    return 0


command.add_command(user_group)
command.add_command(coordinate_command)
