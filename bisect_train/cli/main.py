"""The `bisect-train` command: its group of subcommands, and the one place where errors become exit statuses."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import signal
import sys
import traceback
from types import FrameType

import rich_click as click

from bisect_train import __version__
from bisect_train.cli.terminal import say
from bisect_train.core.errors import BisectTrainError, MachineError

COMMANDS = {
    "run": "find the change that made a training run worse",
    "check": "is this config change safe? which key is not?",
    "nightly": "newest commit of a branch against the last good one, every night; bisect if it is worse",
    "compare": "two ends side by side, step by step, no search",
    "diff": "list the changes between two ends, run nothing",
    "probe": "run one variant once",
    "show": "output, stacks and fingerprint of a probe",
    "resume": "go on with a stored bisection",
    "cancel": "stop a running bisection",
    "status": "where a bisection stands",
    "list": "all stored bisections",
    "log": "what happened in a bisection, event by event, or run by run to correct",
    "mark": "say what a version is, in place of its runs",
    "undo": "take back the newest observations or marks",
    "replay": "run a corrected observation log, as a new bisection",
    "report": "the verdict of a stored bisection",
    "tell": "tell people of the verdict: a webhook, a chat, e-mail, GitHub",
    "baseline": "a good version's runs as golden values, in a file that can be committed",
    "init": "write a commented recipe for a repository",
    "recipes": "the recipes that come with the tool, one for each framework",
    "doctor": "check this machine",
    "cache": "what is kept on this machine: list, tidy up, check",
    "serve": "bisections for others: queue, REST interface, page",
    "demo": "a tour: a real bisection on an embedded example",
}


class LazyGroup(click.RichGroup):
    """Imports a command's module when it is used, so that `--help` is quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the manual."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"bisect_train.cli.{cmd_name}_command")
        command: click.Command = module.command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="bisect-train")
def group() -> None:
    """Which change made my training run worse?

    bisect-train compares a known-good and a known-bad end of a training program (commits, config keys), runs the states in
    between as small reproductions, and narrows until one change is isolated and confirmed.

    \b
    Examples:
      bisect-train run --good v1.2 --bad main -- python train.py --config train.yaml
      bisect-train check good.yaml bad.yaml -- python train.py --config {config}
      bisect-train demo
    """


def main() -> None:
    """Run the command line; the exit status is that of the manual, 130 when interrupted."""
    signal.signal(signal.SIGTERM, _interrupt)
    atexit.register(gc.freeze)  # what ends anyway need not be searched for garbage: 0.4 s where Ray was used
    try:
        status = group.main(standalone_mode=False, prog_name="bisect-train")
        _leave(int(status or 0))
    except BisectTrainError as error:
        _complain(error)
        _leave(error.exit_status)
    except click.ClickException as error:
        error.show()
        _leave(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted", err=True)
        _leave(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _leave(1)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(MachineError(f"{where}{error.strerror or error}", hint=_hint_of(error)))
        _leave(1)
    except Exception as error:
        traceback.print_exc()
        said = f"{type(error).__name__}: {error}"
        hint = "nothing that was observed is lost: `bisect-train resume` goes on; please report the lines above"
        _complain(BisectTrainError(f"this is a fault of bisect-train: {said}", hint=hint))
        _leave(1)


def _hint_of(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some space, then go on with `bisect-train resume`"
    return "`bisect-train doctor` looks at this machine"


def _leave(status: int) -> None:
    sys.exit(status)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C: nothing is lost and nothing stays behind."""
    raise KeyboardInterrupt


def _complain(error: BisectTrainError) -> None:
    kind = "" if error.exit_status == 130 else "error: "  # the message says `interrupted` or `cancelled`
    say(f"bisect-train: {kind}{error.message}", err=True)
    if error.hint:
        say(f"  {error.hint}", err=True)


if __name__ == "__main__":
    main()
