"""A report.json that lies somewhere, shown as the report of a stored bisection is; of this version or of an older one."""

from __future__ import annotations

import json
from pathlib import Path

from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import STDOUT, write_text
from bisect_train.cli.terminal import say
from bisect_train.core.errors import MISSHAPEN, InputError
from bisect_train.report import render_stored_markdown
from bisect_train.report.reading import read_report


def is_report_file(named: str) -> bool:
    """Return whether what is named is a file rather than a bisection."""
    return named.endswith(".json")


def deliver_file(path: Path, output: Output) -> int:
    """Print a report, or write it as Markdown.

    Raises:
        InputError: it cannot be read, is no report or one of a newer version, or a page is asked for.
    """
    if output.out is not None:
        raise InputError("--out needs the bisection itself", hint="a file can be shown, or written with --markdown FILE")
    data = read_report(_read(path), name=str(path))
    try:
        text = render_stored_markdown(data)
    except MISSHAPEN as error:
        raise InputError(f"{path}: this report is damaged", hint=f"{type(error).__name__}: {error}") from error
    if output.json is not None:
        write_text(output.json, json.dumps(data, indent=2) + "\n")
    if output.markdown not in (None, STDOUT):
        write_text(Path(output.markdown), text + "\n")
    else:
        say(text)
    return 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: this is no report: it is not UTF-8 text", hint="--json FILE writes one") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint="name a report.json, or a bisection") from None
