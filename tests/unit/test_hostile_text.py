"""Text of git, of stores, of places that are told and of settings that is not what it should be: each was found by fuzzing."""

from __future__ import annotations

import json
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from bisect_train.changes.config import apply_settings
from bisect_train.changes.config_formats import parse_config
from bisect_train.changes.config_json5 import MAX_CHARS
from bisect_train.changes.fixup_patch import _removed_lines
from bisect_train.changes.history import commit_range
from bisect_train.changes.hunk_files import _entries
from bisect_train.changes.hunks import Hunk, parse_hunks
from bisect_train.changes.plumbing import GitCommandError
from bisect_train.core.changes import FilePatch
from bisect_train.core.errors import MAX_MESSAGE_CHARS, InputError, MachineError, NotDelivered, RecipeError, RevisionError
from bisect_train.core.question import ConfigEnd, Question, Range
from bisect_train.nightly.state import read_state
from bisect_train.store import codec, rows
from bisect_train.store.contract import StoredEvent
from bisect_train.telling.addresses import open_messenger
from bisect_train.telling.composing import compose
from bisect_train.telling.github_errors import translate
from bisect_train.telling.patience import TryLater, read_retry_after
from tests.support.findings import make_finding
from tests.support.git_repos import question_of

GOOD, BAD = "a" * 40, "b" * 40


@pytest.mark.parametrize("count", ["999999999999999999", "9" * 30, "9" * 6000])
def test_patch_whose_header_promises_more_lines_than_come_ends_with_them(count: str) -> None:
    patch = f"index {'1' * 40}..{'2' * 40}\n@@ -1,{count} +1 @@\n-old\n+new\n".encode()
    found = parse_hunks(patch)
    assert found == ({("1" * 40, "2" * 40): (Hunk(1, int(count), 1, 1),)} if len(count) < 19 else {})
    assert _removed_lines(patch) == (frozenset([b"old"]) if len(count) < 19 else frozenset())


@pytest.mark.parametrize("raw", [b":100644 100644 1 2\0a\0", b"x\0", b":100644 100644 1 2 M\0", b":1 2 3 4 R100\0a\0"])
def test_listing_that_is_no_difference_of_trees_is_told(raw: bytes) -> None:
    with pytest.raises(GitCommandError, match="something else than asked"):
        _entries(raw)


class Git:
    """A git that answers with the same bytes to everything, and that nothing reaches anything."""

    def __init__(self, output: bytes) -> None:
        self._output = output

    def run(self, *args: str, **more: Any) -> bytes:
        return self._output

    def succeeds(self, *args: str) -> bool:
        return False


@pytest.mark.parametrize("first_parent", [True, False])
def test_history_that_goes_round_in_circles_is_told(first_parent: bool) -> None:
    rows = [(BAD, "c" * 40), ("c" * 40, "d" * 40), ("d" * 40, BAD)]
    output = "".join(f"{commit}\0{parent}\0n\0d\0s\0" for commit, parent in rows).encode()
    repository = SimpleNamespace(git=Git(output), shallow=frozenset())
    with pytest.raises(RevisionError, match="round in circles"):
        commit_range(repository, Range((GOOD,), BAD, first_parent))  # type: ignore[arg-type]


def test_merge_of_thousands_of_branches_is_told() -> None:
    output = f"{BAD}\0{' '.join([GOOD] * 30_000)}\0n\0d\0s\0".encode()
    repository = SimpleNamespace(git=Git(output), shallow=frozenset())
    with pytest.raises(RevisionError, match="merges 30,000 branches"):
        commit_range(repository, Range((GOOD,), BAD, first_parent=False))  # type: ignore[arg-type]


@pytest.mark.parametrize("output", [b"", b"a\0", f"{GOOD}\0{BAD}\0n\0d\0s\0".encode(), b"\0" * 4])
def test_history_of_another_form_is_told(output: bytes) -> None:
    repository = SimpleNamespace(git=Git(output), shallow=frozenset())
    with pytest.raises(RevisionError):
        commit_range(repository, Range((GOOD,), BAD))  # type: ignore[arg-type]


def damage(values: dict[str, Any], *path: Any, by: Any) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(values))
    place: Any = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = by
    return copied


@pytest.mark.parametrize(
    ("path", "by"),
    [
        (("range",), "x"),
        (("rung",), {"steps": 1, "extra": 2}),
        (("settings", "links"), 1),
        (("settings", "setup"), [1]),
        (("criterion",), "x"),
        (("metric",), None),
        (("env",), ["a"]),
        (("unknown",), 1),
        (("whens",), [{}]),
    ],
)
def test_stored_question_of_another_shape_is_told(path: tuple[Any, ...], by: Any) -> None:
    values = json.loads(json.dumps(question_of(GOOD, BAD).to_json()))
    assert Question.of_json(values).range.bad == BAD
    with pytest.raises(MachineError, match="a stored question cannot be read") as caught:
        Question.of_json(damage(values, *path, by=by))
    assert caught.value.hint


@pytest.mark.parametrize(
    "result",
    [
        {"job_id": "a", "fingerprint": []},
        {"job_id": "a", "fingerprint": {"ending": "x"}},
        {"job_id": "a", "fingerprint": {"ending": {"kind": "finished"}, "ranks": [1]}},
        {"job_id": "a", "fingerprint": {"ending": {"kind": "finished"}, "ranks": [{"rank": float("inf")}]}},
        {"job_id": "a", "fingerprint": {"ending": {"kind": "finished"}, "reads": "x"}},
        {"job_id": "a", "fingerprint": {"ending": {"kind": "finished"}, "judge": "x"}},
    ],
)
def test_stored_result_of_another_shape_is_told(result: Any) -> None:
    with pytest.raises(MachineError, match="a stored result cannot be read"):
        codec.unpack_result(zlib.compress(json.dumps(result).encode()))


@pytest.mark.parametrize("text", ["", "[1]", "{", '"x"', "[" * 200_000, "1" * 5000])
def test_stored_value_that_is_none_is_told(text: str) -> None:
    with pytest.raises(MachineError, match="cannot be read"):
        codec.of_text(text)


def test_stored_probe_without_its_spec_is_told() -> None:
    row = SimpleNamespace(key="k", bisection_id="0000000a", time_s=0.0, data='{"spec": 3}', result=b"")
    with pytest.raises(MachineError, match="probe k of bisection 0000000a cannot be read"):
        rows.probe_of(row)


@pytest.mark.parametrize(
    "data", [{}, {"kept": 1}, {"kept": {"finding": {}}}, {"kept": {"finding": {"state": "x", "kind": "y"}, "role": "z"}}]
)
def test_event_of_a_nightly_history_of_another_shape_is_told(data: dict[str, Any]) -> None:
    with pytest.raises(MachineError, match="event 4 of a nightly history cannot be read"):
        read_state([StoredEvent(4, "finding", 0.0, data)])


@pytest.mark.parametrize("header", ["²", "1²", "Fri, 01 Jan 99999999999 00:00:00 GMT", "Fri, 32 Jan 2026", "x", ""])
def test_retry_after_that_is_no_time_asks_for_none(header: str) -> None:
    assert read_retry_after(header, now_s=0.0) is None


@pytest.mark.parametrize("data", [{"message": ["x"]}, {"message": {"a": 1}}, {"message": None}, [1], None])
def test_answer_of_github_of_another_shape_is_told(data: Any) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "²"}
    for status in (403, 422):
        error = SimpleNamespace(status=status, headers=headers, data=data)
        assert isinstance(translate(error, place="GitHub", now_s=0.0), (TryLater, NotDelivered))  # type: ignore[arg-type]


@pytest.mark.parametrize("address", ["discord://x/\udcff", "slack://a/b/\ud800", f"github-comment:a/b#{'9' * 5000}"])
def test_address_of_half_characters_or_endless_numbers_is_refused(address: str) -> None:
    with pytest.raises(InputError):
        open_messenger("env:NAME", environ={"NAME": address, "GITHUB_TOKEN": "t"})


def test_link_with_control_characters_is_not_told() -> None:
    finding = make_finding(links=(("x", "https://h/\0"), ("y", "https://h/\x1b[2J"), ("z", "https://h/z")))
    message = compose(finding)
    assert "https://h/z" in message.text and "\0" not in message.text + message.markdown and "\x1b" not in message.text


def end_of(name: str, text: str) -> ConfigEnd:
    return ConfigEnd(name, FilePatch(name, text))


def test_setting_inside_another_setting_is_refused() -> None:
    good = end_of("a.yaml", "model: {depth: 2}\nlr: 1\n")
    for settings in (["model=x", "model.depth=3"], ["model.depth=3", "model={depth: 4}"]):
        with pytest.raises(RecipeError, match=r"model\.depth lies in model, which is set as well"):
            apply_settings(good, settings)


def test_json_with_comments_is_read_up_to_a_bound_and_plain_json_beyond() -> None:
    text = json.dumps({"a": "x" * MAX_CHARS})
    assert parse_config(end_of("a.json", text)).values["a"]
    with pytest.raises(RecipeError, match=f"at most {MAX_CHARS:,} characters are read"):
        parse_config(end_of("a.json5", f"// {text}\n{text}"))


def test_message_that_quotes_a_whole_file_is_shortened() -> None:
    error = InputError("x" * 10**6, hint="y" * 10**6)
    assert len(str(error)) < 3 * MAX_MESSAGE_CHARS and "1,000,000 characters" in error.message
