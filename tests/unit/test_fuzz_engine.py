"""The fuzzing tool itself: it finds what it is for, says it again from a file, and makes it small."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest

from bisect_train.core.errors import InputError
from tests.fuzz.engine import Kind, Target, case_of, run_case, shrink_case
from tests.fuzz.results import Failure, Tally, load_case, save_case, table_of
from tests.fuzz.targets import TARGETS
from tests.fuzz.text_changes import change_bytes, change_text
from tests.fuzz.value_changes import change_value, json_text
from tests.fuzz.worker import run_range


def target_of(run: Any) -> Target:
    return Target("x", lambda rng: change_text(rng, "a: 1\nb: 2\n", ["c"]), run, (InputError,))


def refuse(text: str) -> None:
    raise InputError("no")


def refuse_silently(text: str) -> None:
    raise InputError("")


def fail(text: str) -> None:
    if "b" in text:
        raise KeyError(text)


def never_end(text: str) -> None:
    while text:
        pass


@pytest.mark.parametrize(
    ("run", "kind"),
    [(len, Kind.READ), (refuse, Kind.CLEAR), (refuse_silently, Kind.CRASH), (fail, Kind.CRASH), (never_end, Kind.HANG)],
)
def test_what_came_of_an_input_is_told(run: Any, kind: Kind) -> None:
    ran = run_case(target_of(run), "ab", limit_s=0.2)
    assert ran.kind is kind and ran.is_failure == (kind in (Kind.CRASH, Kind.HANG))
    assert bool(ran.place) == ran.is_failure


def test_an_input_depends_on_seed_and_number_only() -> None:
    target = target_of(len)
    made = [case_of(target, 3, number) for number in range(50)]
    assert made == [case_of(target, 3, number) for number in range(50)]
    assert len(set(made)) > 30 and made != [case_of(target, 4, number) for number in range(50)]


def test_failing_input_is_made_small_and_kept() -> None:
    target = target_of(fail)
    place = run_case(target, "b").place
    assert shrink_case(target, "xx" * 40 + "b" + "y" * 33, place) == "b"


def test_case_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    case = ("é\ud800", b"\xff\0", [1, None, (math.inf, {"a": b"x", "b": [True]})], {})
    save_case(tmp_path / "x.json", "csv", case, place="p", said="s")
    assert load_case(tmp_path / "x.json") == ("csv", case)


def test_tallies_add_up_and_survive_their_way_between_processes() -> None:
    first = Tally("x", 3, 1, 0.5, 2, 10, {"p": Failure("crash", "p", "s", 2, 2)})
    first.join(
        Tally.of_json(
            Tally("x", 4, 2, 0.75, 9, 5, {"p": Failure("crash", "p", "s", 9), "q": Failure("hang", "q", "", 1)}).to_json()
        )
    )
    assert (first.num, first.num_clear, first.slowest_s, first.slowest_number, first.peak_mib) == (7, 3, 0.75, 9, 10)
    assert [item.num for item in first.failures.values()] == [3, 1]
    assert table_of([first]).splitlines()[-1].replace(" ", "").startswith("|x|7|3|3|1|0.75s|")


def test_changes_reach_text_bytes_and_values_of_every_type() -> None:
    rng = random.Random(1)
    texts = [change_text(rng, "lr: 0.1\nname: x\n", ["z: 1"]) for _ in range(300)]
    assert any("\0" in text for text in texts) and any("\ufeff" in text for text in texts) and any(not text for text in texts)
    data = [change_bytes(rng, b"lr: 0.1\n", [b"z"]) for _ in range(300)]
    assert any(item.startswith(b"\xff\xfe") for item in data)
    value = {"a": [1, {"b": "x"}], "c": 0.5}
    made = [change_value(rng, value) for _ in range(300)]
    assert value == {"a": [1, {"b": "x"}], "c": 0.5}
    kinds = {type(item.get("a")) for item in made if isinstance(item, dict)}
    assert {list, dict, str, int, float, type(None)} <= kinds
    assert any("NaN" in json_text(rng, item) for item in made)


SLICE = 3000
"""Inputs of all targets together that run with the other tests."""


@pytest.mark.parametrize("name", TARGETS)
def test_slice_of_hostile_inputs_meets_clear_errors_only(name: str) -> None:
    target = TARGETS[name]
    num = max(10, round(SLICE * target.share / sum(item.share for item in TARGETS.values())))
    tally = run_range(target, 9, 0, num)
    assert tally.num == num
    assert not tally.failures, f"python -m tests.fuzz --seed 9 --target {name} --inputs {num}: {tally.failures}"
