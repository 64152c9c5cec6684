"""What reports say of the kind of a failure: rows and curves of the ranks, stacks, samples, second looks, all renderings."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType

from bisect_train.core.changes import Point
from bisect_train.core.fingerprint import Ending, EndingKind, Event, Fingerprint
from bisect_train.core.probe import ProbeResult, Rung
from bisect_train.core.question import Metric
from bisect_train.core.verdict import Criterion
from bisect_train.report import render_html, render_text, report_to_json
from bisect_train.report.rank_divergence import divergences_by_rank, first_rates
from bisect_train.report.second_look import read_second_look
from bisect_train.report.triage_parts import SecondLook
from bisect_train.report.triage_text import render_triage
from bisect_train.report.triage_view import triage_run
from bisect_train.verdict.triage import Asked, SecondRun
from tests.support.report_cases import commit_space, make_question, play
from tests.support.triage_runs import ANOMALY_LOG, DETAIL_LOG, MISSING_LOG, dealt, hanging, overlapping, two_ranks

ASKED = Asked(steps=12, ranks=2, timeout_s=60.0, metric=Metric())
CULPRIT = 13


def text_of(what: RenderableType) -> str:
    console = Console(file=StringIO(), width=160, color_system=None)
    console.print(what)
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def result_of(fingerprint: Fingerprint, log: str = "") -> ProbeResult:
    return ProbeResult("k", fingerprint, log_tail=log)


# ---- one run ------------------------------------------------------------------------------------------------------


def test_triage_of_a_healthy_run_says_what_was_looked_at_and_what_cannot_be_seen() -> None:
    part = triage_run(result_of(two_ranks()), asked=ASKED)
    assert part.findings == () and part.category is None
    text = text_of(render_triage(part))
    assert "Triage: nothing was seen" in text
    assert "12 steps on 2 ranks" in text and "the ranks against each other" in text
    assert "anything after step 12" in text and "what only a comparison shows" in text


def test_triage_of_overlapping_samples_names_ranks_and_how_many_are_distinct() -> None:
    part = triage_run(result_of(two_ranks(overlapping)), asked=ASKED)
    assert (part.category, part.symptom, part.stage) == ("silent_distributed", "overlapping_samples", "data")
    assert [(row.num_samples, row.num_distinct) for row in part.ranks] == [(48, 48), (48, 48)]
    text = text_of(render_triage(part))
    assert "1. overlapping_samples (silent distributed; data" in text and "ranks 0, 1" in text
    assert "look first at:" in text and "48 of 48 distinct" in text


def test_triage_of_a_hang_says_which_rank_waits_where_and_asks_for_a_second_run() -> None:
    part = triage_run(hanging(), asked=ASKED)
    assert part.category == "stopped"
    assert [(stack.rank, stack.waits_at) for stack in part.stacks] == [
        (0, "barrier (distributed/distributed_c10d.py:5356), called from save (checkout/train.py:9)"),
        (1, "barrier (distributed/distributed_c10d.py:5356), called from main (checkout/train.py:21)"),
    ]
    assert part.ranks[1].ending.startswith("waits in barrier")
    text = text_of(render_triage(part))
    assert text.index("Which rank waits where") < text.index("--- stack of rank 0")
    assert "--- stack of rank 0" not in text_of(render_triage(part, with_stacks=False))


def test_stacks_leave_out_our_own_frames_and_tell_the_launcher_apart() -> None:
    stuck = hanging()
    launcher = (
        "Current thread 0x1 (most recent call first):\n"
        '  File "/env/lib/python3.11/site-packages/torch/distributed/elastic/agent/server/api.py", line 923 in _invoke_run\n'
        '  File "/env/lib/python3.11/site-packages/torch/distributed/run.py", line 1032 in <module>\n'
    )
    own = '  File "/tmp/probe/recorder/_bisect_train_recorder/collective_watch.py", line 129 in call\n'
    first = stuck.stacks[0][1].replace('  File "/work', own + '  File "/work', 1)
    stacks = (("stacks-rank0-pid9.txt", launcher), (stuck.stacks[0][0], first), stuck.stacks[1])
    part = triage_run(replace(stuck, stacks=stacks), asked=ASKED)
    assert [(stack.name, stack.rank) for stack in part.stacks][2] == ("launcher", None)
    assert part.stacks[0].waits_at.endswith("called from save (checkout/train.py:9)")
    assert "launcher: _invoke_run" in text_of(render_triage(part))


def test_stacks_of_a_rank_that_works_and_of_any_launcher_are_told_as_triage_tells_them() -> None:
    stuck = hanging()
    launcher = (
        "Current thread 0x1 (most recent call first):\n"
        '  File "/env/lib/python3.11/subprocess.py", line 1 in wait\n'
        '  File "/env/lib/python3.11/site-packages/accelerate/commands/launch.py", line 3 in simple_launcher\n'
        '  File "/env/bin/accelerate", line 8 in <module>\n'
    )
    busy = (
        "Current thread 0x1 (most recent call first):\n"
        '  File "/node/checkout/data.py", line 4 in tokenize\n'
        '  File "/node/checkout/train.py", line 9 in <module>\n'
    )
    stacks = (("stacks-rank0-pid9.txt", launcher), stuck.stacks[0], ("stacks-rank1-pid12.txt", busy))
    part = triage_run(replace(stuck, stacks=stacks), asked=ASKED)
    assert [(stack.name, stack.rank) for stack in part.stacks][2] == ("launcher", None)
    assert [row.ending for row in part.ranks] == ["waits in barrier, called by save (train.py)", "is in tokenize (data.py)"]
    assert part.stacks[1].waits_at == "tokenize (checkout/data.py:4)"
    second = read_second_look(SecondRun.DETAIL, replace(stuck, stacks=stacks, log_tail=MISSING_LOG), key="k")
    assert [text for text in second.said if "rank None" in text] == [] and len(second.said) == 3


def test_triage_against_a_baseline_pairs_the_samples_that_differ() -> None:
    def shifted(rank: int, step: int) -> list[int]:
        return [number + 5000 for number in dealt(rank, step)]

    part = triage_run(result_of(two_ranks(shifted)), baseline=result_of(two_ranks()), asked=ASKED)
    assert [(pair.rank, pair.step, pair.baseline[0], pair.run[0]) for pair in part.samples] == [
        (0, 0, "0", "5000"),
        (1, 0, "1", "5001"),
    ]
    text = text_of(render_triage(part))
    assert "rank 1, step 0, baseline: 1 3 5 7" in text and "rank 1, step 0, run: 5001 5003 5005 5007" in text
    assert [curve.side for curve in part.curves] == ["run", "run", "baseline", "baseline"]


def test_triage_without_differing_data_pairs_none() -> None:
    part = triage_run(result_of(two_ranks()), baseline=result_of(two_ranks()), asked=ASKED)
    assert part.samples == () and len(part.baseline_ranks) == 2


def test_sample_pair_shows_the_values_around_the_first_that_differs() -> None:
    left, right = two_ranks(num_ranks=1), two_ranks(num_ranks=1)
    values = list(range(40))
    changed = [*values[:30], 999, *values[31:]]
    runs = []
    for run, numbers in ((left, values), (right, changed)):
        events = (Event("first_batch", 0, {"values": [numbers]}),)
        runs.append(replace(run, ranks=(replace(run.ranks[0], events=events),)))
    [pair] = triage_run(result_of(runs[1]), baseline=result_of(runs[0]), asked=replace(ASKED, ranks=1)).samples
    assert "30" in pair.baseline and "999" in pair.run and len(pair.run) <= 16


def test_symptom_that_was_asked_about_comes_first_with_its_own_category() -> None:
    nan = result_of(two_ranks(overlapping, nan_from=8))
    assert [finding.symptom for finding in triage_run(nan, asked=ASKED).findings] == ["nan_loss", "overlapping_samples"]
    part = triage_run(nan, asked=ASKED, symptom="overlapping_samples")
    assert (part.category, part.symptom, part.stage) == ("silent_distributed", "overlapping_samples", "data")


def test_changed_data_of_ranks_that_overlap_is_told_after_that() -> None:
    part = triage_run(result_of(two_ranks(overlapping)), baseline=result_of(two_ranks()), asked=ASKED)
    assert (part.category, part.symptom) == ("silent_distributed", "overlapping_samples")
    assert part.findings[-1].symptom == "data_changed"
    assert "Triage: silent distributed - overlapping_samples, stage: data" in text_of(render_triage(part))


def test_one_healthy_run_cannot_show_a_step_that_is_somewhat_slower() -> None:
    base = two_ranks()
    alone = triage_run(result_of(two_ranks()), baseline=result_of(base), asked=ASKED)
    assert any("less than 10 times slower" in text for text in alone.cannot_see)
    seeds = triage_run(result_of(base), baseline=result_of(base), replicates=[two_ranks(seed_idx=1)], asked=ASKED)
    assert not any("times slower" in text for text in seeds.cannot_see)


# ---- second looks -------------------------------------------------------------------------------------------------


def test_second_look_with_anomaly_detection_names_the_operation_and_its_place() -> None:
    look = read_second_look(SecondRun.ANOMALY, result_of(two_ranks(), ANOMALY_LOG), key="abc")
    assert look.said == (
        "SqrtBackward0, the backward pass of sqrt, gave the first NaN (its output number 0)",
        "its forward pass was called from loss_of (checkout/model.py:5)",
    )
    assert look.key == "abc"


def test_second_look_in_detail_names_the_collectives_that_differ() -> None:
    look = read_second_look(SecondRun.DETAIL, result_of(two_ranks(), DETAIL_LOG), key="k")
    assert look.said == (
        "the ranks' last collective calls differ: rank 0: allreduce of [8] float (call 1); rank 1: barrier (call 1)",
    )


def test_second_look_in_detail_reads_the_mismatch_where_the_log_is_cut() -> None:
    log = (
        "[rank1]: RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=8, OpType=ALLREDUCE, TensorShape=[1, 8], TensorDtypes=Float, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu)), but Rank 0 is running collective: "
        "CollectiveFingerPrint(SequenceNumber=0OpType=GATHER).Collectives differ in the following aspects: Op type\n"
    )
    look = read_second_look(SecondRun.DETAIL, result_of(two_ranks(), log), key="k")
    assert look.said == ("the ranks call different collectives: rank 1 calls allreduce of [1, 8] float (call 8)",)


def test_second_look_in_detail_names_the_rank_that_never_came() -> None:
    look = read_second_look(SecondRun.DETAIL, result_of(two_ranks(), MISSING_LOG), key="k")
    assert look.said == ("rank 1 never came to a collective call that the others wait in",)


@pytest.mark.parametrize("kind", list(SecondRun))
def test_second_look_that_says_nothing_more_says_so(kind: SecondRun) -> None:
    look = read_second_look(kind, result_of(two_ranks(), "step 1 loss 2.0\n"), key="k")
    part = triage_run(result_of(two_ranks()), asked=ASKED, second=look)
    assert look.said == () and "said nothing more" in text_of(render_triage(part))


def test_second_look_that_breaks_the_program_says_so() -> None:
    broken = two_ranks(num_steps=0, ending=Ending(EndingKind.KILLED, "killed: SIGSEGV", "rank 1: ended by SIGSEGV", signal=11))
    look = read_second_look(SecondRun.DETAIL, result_of(broken, "no news\n"), key="k")
    assert len(look.said) == 1 and "rank 1: ended by SIGSEGV, before it could say more" in look.said[0]


def test_second_look_that_was_not_made_gives_the_reason() -> None:
    second = SecondLook(SecondRun.DETAIL, reason="the budget of 9 probes is spent")
    text = text_of(render_triage(triage_run(hanging(), asked=ASKED, second=second)))
    assert "TORCH_DISTRIBUTED_DEBUG=DETAIL, was not made: the budget of 9 probes is spent" in text


# ---- rank by rank -------------------------------------------------------------------------------------------------


def test_divergence_of_one_rank_is_told_of_that_rank_alone() -> None:
    left = two_ranks()
    steps = tuple(replace(step, lr=(0.1, 0.2)) if step.step >= 3 else step for step in left.ranks[1].steps)
    right = replace(left, ranks=(left.ranks[0], replace(left.ranks[1], steps=steps)))
    (rank0, nothing), (rank1, found) = divergences_by_rank(left, right)
    assert (rank0, nothing, rank1) == (0, None, 1)
    assert found is not None and (found.rank, found.step, found.signal) == (1, 3, "lr")
    assert (found.left, found.right) == ("(0.1,)", "(0.1, 0.2)")
    rates = first_rates(left, right)
    assert rates is not None and (rates.rank, rates.step) == (1, 3)
    assert rates.rates == ((0.1, 0.1), (None, 0.2))


# ---- in a bisection -----------------------------------------------------------------------------------------------


def overlap_case(symptom: str = "overlapping_samples"):  # type: ignore[no-untyped-def]
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint:
        return two_ranks(overlapping if point.holds(CULPRIT) else dealt, seed_idx=seed)

    question = make_question(rung=Rung(12, 2), symptom=symptom, criterion=Criterion.SYMPTOM)
    return play(behave, commit_space(), question)


def test_report_of_a_symptom_carries_findings_ranks_and_curves() -> None:
    report = overlap_case().report()
    commit = commit_space().changes[CULPRIT]
    assert (report.status, report.exit_status, report.culprits[0].changes[0].id) == ("isolated", 0, commit.id)
    assert "makes training show overlapping_samples (samples come on more than one rank)" in report.summary
    data = report_to_json(report)["triage"]
    assert (data["category"], data["symptom"], data["stage"]) == ("silent_distributed", "overlapping_samples", "data")
    assert data["findings"][0]["ranks"] == [0, 1] and data["findings"][0]["evidence"]
    assert [row["rank"] for row in data["ranks"]] == [0, 1] and [row["rank"] for row in data["baseline_ranks"]] == [0, 1]
    assert {curve["side"] for curve in data["curves"]} == {"run", "baseline"}
    json.dumps(data, allow_nan=False)


def test_report_of_a_symptom_is_told_on_the_terminal_and_on_the_page() -> None:
    report = overlap_case().report()
    text, page = text_of(render_text(report)), render_html(report)
    for shown in (text, page):
        assert "What it did to the run" in shown and "overlapping_samples" in shown
    assert "48 of 48 distinct" in text
    assert "Loss, rank by rank" in page and 'id="rank-losses"' in page and "before it" in page


def test_report_of_a_hang_shows_escaped_stacks_and_the_second_look() -> None:
    def behave(point: Point, seed: int, repeat: int) -> Fingerprint | ProbeResult:
        if not point.holds(CULPRIT):
            return two_ranks(seed_idx=seed)
        stuck = hanging(seed_idx=seed)
        evil = '  File "/node/checkout/<script>alert(1)</script>.py", line 3 in f\n'
        return replace(stuck, stacks=(("stacks-rank0-pid1.txt", evil), *stuck.stacks[1:]))

    solved = play(behave, commit_space(), make_question(rung=Rung(12, 2)))
    report = solved.report()
    second = SecondLook(SecondRun.DETAIL, ("rank 1 never came & <b>stopped</b>",), "k")
    report = replace(report, triage=replace(report.triage, second=second))
    page = render_html(report)
    assert "Which rank waits where" in page and "rank 1: barrier" in page
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page
    assert "rank 1 never came &amp; &lt;b&gt;stopped&lt;/b&gt;" in page
    assert report_to_json(report)["triage"]["second_look"]["kind"] == "detail"
    assert report.kind_of_change == "hang" and report.triage.category == "stopped"


def test_report_that_did_not_reproduce_names_what_triage_saw_and_the_command() -> None:
    report = play(
        lambda point, seed, repeat: two_ranks(overlapping if point.holds(CULPRIT) else dealt, seed_idx=seed),
        commit_space(),
        make_question(rung=Rung(12, 2), command=("python", "train.py")),
    ).report()
    assert report.status in ("not_reproduced", "no_regression")
    told = " ".join(report.explanation)
    assert "triage of the bad end shows: overlapping_samples" in told
    assert "--steps 12 --ranks 2 --symptom overlapping_samples -- python train.py`" in told


def test_report_that_did_not_reproduce_is_silent_where_nothing_is_wrong() -> None:
    report = play(
        lambda point, seed, repeat: two_ranks(seed_idx=seed), commit_space(), make_question(rung=Rung(12, 2))
    ).report()
    assert report.status == "no_regression" and report.triage.findings == ()
    assert "triage" not in " ".join(report.explanation)
