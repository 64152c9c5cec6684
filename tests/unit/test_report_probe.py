"""One probe for a person: how it ended, what its judge said."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from bisect_train.core.fingerprint import JudgeResult
from bisect_train.core.probe import ProbeResult, RunSettings
from bisect_train.report.probe_view import render_probe
from bisect_train.store.contract import StoredProbe
from tests.support.report_cases import commit_space, make_fingerprint, make_question, play

LINES = [f"line {number}" for number in range(20)]


def shown(judge: JudgeResult | None) -> str:
    result = ProbeResult("k", replace(make_fingerprint(3.0), judge=judge), wall_s=1.0, node="here", log_tail="of the program\n")
    console = Console(file=StringIO(), width=150, color_system=None)
    console.print(render_probe(StoredProbe("k", "b", {}, result, 0.0)))
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (0, "good"),
        (1, "bad"),
        (124, "bad"),
        (125, "untestable"),
        (126, "could not be started"),
        (127, "could not be started"),
        (137, "killed, or hit its time limit"),
    ],
)
def test_show_says_what_the_judge_said_and_printed(status: int, word: str) -> None:
    text = shown(JudgeResult(status, "\n\n".join(LINES)))
    assert f"judge     exit status {status} ({word})\n" in text
    assert "--- output of the judging command (its end)\n" + "\n".join(LINES[-12:]) in text
    assert LINES[7] not in text.splitlines()


def test_show_of_a_silent_judge_or_none_shows_no_output_of_it() -> None:
    assert "output of the judging command" not in shown(JudgeResult(1)) + shown(None)
    assert "judge " not in shown(None)


def test_report_shows_what_a_judge_printed_where_it_did_not_call_a_run_good() -> None:
    settings = RunSettings(python="/env/bin/python", judge=("python", "judge.py"))

    def behave(point, seed, repeat):  # type: ignore[no-untyped-def]
        status = 125 if point.prefix == 12 else int(point.holds(13))
        return replace(make_fingerprint(3.0, seed=seed), judge=JudgeResult(status, f"acc of {point.to_text()}\n"))

    report = play(behave, commit_space(), make_question(settings=settings)).report()
    tails = {(row.verdict, row.log_tail) for row in report.probes}
    assert ("good", "") in tails and ("bad", "acc of 24") in tails and ("cannot be tested", "acc of 12") in tails
    assert not any(verdict == "good" and tail for verdict, tail in tails)
