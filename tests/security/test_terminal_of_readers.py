"""What strangers wrote gives a terminal no orders: subjects, log lines, errors; in answers, the live view, plain lines."""

from __future__ import annotations

import ast
import io
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.live import Live
from rich.table import Table
from rich.text import Text

import bisect_train
from bisect_train.cli.asked import Output
from bisect_train.cli.delivering import deliver, make_console
from bisect_train.cli.main import _complain, group
from bisect_train.cli.terminal import SafeConsole, say
from bisect_train.core.errors import InputError
from bisect_train.report import render_text
from bisect_train.store.home import open_store
from tests.support.findings import HOSTILE
from tests.support.git_repos import UserRepo, question_of
from tests.support.report_cases import FakeSpace, commit_space, make_commits, make_failure, make_fingerprint, play, step_change

ORDERS = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m\r\x08\u202egpj.exe\u2066\u200e end"
ALLOWED = {"\n", "\t"}


def acts(text: str) -> set[str]:
    """Return the characters of a text that a terminal would obey, or that turn its direction round."""
    return {
        letter for letter in text if letter not in ALLOWED and not letter.isprintable() and letter not in "\u200d\u2009\u00a0"
    }


def shown(*renderables: object, **more: object) -> str:
    file = io.StringIO()
    SafeConsole(file=file, width=200, **more).print(*renderables)  # type: ignore[arg-type]
    return file.getvalue()


@given(st.text(st.sampled_from(list(ORDERS + "ab[]/\n")) | st.characters(), max_size=60))
def test_text_of_any_kind_gives_no_orders(text: str) -> None:
    assert not {letter for letter in shown(Text(text)) if letter in ORDERS and ord(letter) not in range(32, 127)} - ALLOWED


def test_text_in_a_table_and_beside_a_live_view_gives_no_orders() -> None:
    table = Table()
    table.add_column(ORDERS)
    table.add_row(Text(ORDERS))
    assert not acts(shown(table))
    file = io.StringIO()
    console = SafeConsole(file=file, width=80, force_terminal=True, color_system=None)
    with Live(Text("picture" + ORDERS), console=console, auto_refresh=False) as live:
        console.print(ORDERS, markup=False)
        live.refresh()
    assert not [order for order in ("\x1b]", "\x1b[2J", "\x1b[31m", "\x9b", "\u202e", "\x08") if order in file.getvalue()]


def test_colours_of_our_own_stay() -> None:
    assert "\x1b[1m" in shown(Text("ours", style="bold"), force_terminal=True)


def test_line_and_error_give_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    say(ORDERS)
    _complain(InputError(f"unknown revision {ORDERS}", hint=ORDERS))
    out = capsys.readouterr()
    assert not acts(out.out + out.err) and "unknown revision" in out.err


def test_verdict_on_hostile_commits_and_output_gives_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    space = FakeSpace(make_commits(24, titles={13: HOSTILE + ORDERS, 12: ORDERS}))
    report = play(step_change(13), space).report()
    deliver(report, make_console(Output()), output=Output())

    def behave(point, seed, repeat):  # type: ignore[no-untyped-def]
        return (
            make_failure(f"RuntimeError: {ORDERS}", steps=3, seed=seed) if point.holds(13) else make_fingerprint(3.0, seed=seed)
        )

    file = io.StringIO()
    SafeConsole(file=file, width=100).print(render_text(play(behave, commit_space()).report()))
    said = capsys.readouterr().out + file.getvalue()
    assert not acts(said) and "RuntimeError" in said


@pytest.mark.parametrize(
    "subject", ["close [/b] what was never open", "[bold]loud[/bold]", "[link=https://evil.example]x[/link]"]
)
def test_subject_with_brackets_is_shown_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subject: str) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    good = repo.commit({"train.py": "1\n"})
    for name in (subject, "last"):
        repo.commit({"train.py": f"{name}\n"}, message=name)
    home = tmp_path / "home"
    for name, value in (("BISECT_TRAIN_HOME", str(home)), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(repo.path)
    listed = CliRunner().invoke(group, ["diff", "--good", good, "--", "python", "train.py"])
    assert listed.exit_code == 0 and subject in listed.output
    store = open_store(home)
    store.create(replace(question_of(good, repo.head), repo=str(repo.path)).to_json(), title=subject)
    store.close()
    for words in (["status"], ["list"]):
        said = CliRunner().invoke(group, words)
        assert said.exception is None and subject in said.output


def test_every_console_of_the_command_line_is_the_safe_one() -> None:
    """A bare console of rich would let escape sequences through."""
    found = []
    for path in Path(bisect_train.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
            if name == "Console" and path.name != "terminal.py":
                found.append(f"{path.name}:{node.lineno}")
    assert found == []
