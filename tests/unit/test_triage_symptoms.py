"""`--symptom NAME`: which names are refused, and that a probe does not contradict what triage says of it."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from bisect_train.cli.symptoms import list_symptoms, refuse_symptom
from bisect_train.cli.triage_probe import TriagedProbe, render_triaged, shows_symptom
from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import ProbeResult
from bisect_train.report.triage_case import option_for
from bisect_train.report.triage_view import triage_run
from bisect_train.store.contract import StoredProbe
from bisect_train.verdict.triage import BASELINE_SYMPTOMS, SYMPTOMS, WIDER_SYMPTOMS, Asked, hard_symptoms
from tests.support.triage_records import finding_of, make_run
from tests.support.triage_runs import hanging


def asking(name: str) -> Any:
    return SimpleNamespace(symptom=name, judge=None, criterion="auto")


@pytest.mark.parametrize(
    ("name", "wider"),
    [("hang_at_end", "`--symptom hang`"), ("hang_in_init", "`--symptom hang`"), ("rank_died", "`--symptom killed` or")],
)
def test_symptom_that_takes_stacks_or_the_log_is_refused_with_the_name_to_use(name: str, wider: str) -> None:
    with pytest.raises(InputError) as raised:
        refuse_symptom(asking(name))
    assert wider in (raised.value.hint or "") and "stacks" in raised.value.message
    assert any(line.split()[0] == name and wider in line for line in list_symptoms() if line.startswith("  "))


def test_every_other_name_is_accepted() -> None:
    for name in SYMPTOMS.keys() - BASELINE_SYMPTOMS - WIDER_SYMPTOMS.keys():
        refuse_symptom(asking(name))


def stored(result: ProbeResult) -> StoredProbe:
    return StoredProbe("k", "b", {"rung": "10 steps"}, result, 0.0)


def test_command_that_is_suggested_for_a_hang_at_the_end_is_accepted() -> None:
    run = hanging(num_steps=12)
    found = finding_of("hang_at_end", run, steps=12)
    option = option_for(found, hard_symptoms(run.fingerprint))
    assert option == "--symptom hang"
    refuse_symptom(asking(option.split()[1]))


def test_probe_that_hangs_at_its_end_shows_a_hang() -> None:
    run = hanging(num_steps=12)
    part = triage_run(run, asked=Asked(steps=12, ranks=2), symptom="hang")
    assert part.findings[0].symptom == "hang_at_end" and shows_symptom(stored(run), "hang", part)


def test_probe_that_compiles_beyond_its_time_is_slow_and_no_hang() -> None:
    stack = (
        "Current thread 0x1 (most recent call first):\n"
        '  File "/env/lib/python3.11/site-packages/torch/_inductor/codecache.py", line 1 in compile\n'
        '  File "/checkout/train.py", line 3 in <module>\n'
    )
    run = make_run(0, ending=Ending(EndingKind.TIMEOUT, "timeout: hang"), stacks=(("stacks-rank0-pid1.txt", stack),))
    assert shows_symptom(stored(run), "slow_not_hung") and not shows_symptom(stored(run), "hang")


def test_symptom_that_only_the_baseline_brings_out_is_shown() -> None:
    run = make_run(change=lambda _, step: {"loss": 3.0 + 0.01 * (-1) ** step})
    base = make_run()
    part = triage_run(run, baseline=base, asked=Asked(), symptom="plateau")
    assert part.findings[0].symptom == "plateau" and not shows_symptom(stored(run), "plateau")
    assert shows_symptom(stored(run), "plateau", part)
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(render_triaged(TriagedProbe(stored(run), base, part), symptom="plateau"))
    assert "plateau (the loss does not drop): shown" in console.file.getvalue()  # type: ignore[attr-defined]
