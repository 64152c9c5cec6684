"""Text of strangers on the pages: nothing that acts on a terminal, a browser or a reader's eye gets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from bisect_train.service.pages.clean import finalize, one_line, printable
from bisect_train.service.pages.diff_view import MAX_LINES, read_diff
from bisect_train.service.pages.figures import label, trace
from bisect_train.service.pages.rendering import ticks


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]8;;https://evil.example\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title without an end", ""),
        ("a\u202etxt.exe", "a\\u202etxt.exe"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("null\x00 bell\x07", "null\\u0000 bell\\u0007"),
        ("10 %\r50 %\r\nend", "10 %\n50 %\nend"),
        ("lone \udcff byte", "lone \\udcff byte"),
        ("grüße, 日本, 👩‍🚀", "grüße, 日本, 👩‍🚀"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_printable_text_shows_what_would_act(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(codec=None), max_size=60))
def test_printable_text_can_be_sent_and_says_the_same_twice(text: str) -> None:
    shown = printable(text)
    shown.encode("utf-8")
    assert printable(shown) == shown
    assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in shown)


def test_one_line_has_no_breaks() -> None:
    assert one_line(" a\n\n b\r c ") == "a b c"


def test_finalize_leaves_markup_and_other_values() -> None:
    assert finalize(Markup("<b>\x1b[1m</b>")) == Markup("<b>\x1b[1m</b>")
    assert finalize(3.5) == 3.5
    assert finalize("\x1b[1mbold") == "bold"


def test_ticks_become_code_and_nothing_else_becomes_markup() -> None:
    assert ticks("run `bisect-train <b>` now") == "run <code>bisect-train &lt;b&gt;</code> now"
    assert ticks("a lone ` and <i>") == "a lone ` and &lt;i&gt;"


def test_label_of_a_figure_is_escaped_and_short() -> None:
    assert label("<b>x</b>\x1b[1m") == "&lt;b&gt;x&lt;/b&gt;"
    assert len(label("x" * 500)) == 60


def test_trace_keeps_the_last_point_and_no_value_that_json_has_not() -> None:
    made = trace("run", list(range(5000)), [float("nan"), *[1.0] * 4998, 9.0], colour="c0")
    assert len(made["x"]) <= 601
    assert (made["x"][-1], made["y"][-1], made["y"][0]) == (4999, 9.0, None)


def test_diff_tells_lines_apart_and_hides_secrets() -> None:
    head = "diff --git a/c.yaml b/c.yaml\n--- a/c.yaml\n+++ b/c.yaml\n@@ -1,2 +1,2 @@\n"
    diff = read_diff(f"{head} same: 1\n-lr: 0.1\n+wandb_api_key: abc123def\n", title="t")
    assert [line.kind for line in diff.lines] == ["file", "file", "file", "place", "same", "removed", "added"]
    assert diff.lines[-1].text == "+wandb_api_key: (hidden)"


def test_long_diff_is_cut_and_says_so() -> None:
    diff = read_diff("+x\n" * (MAX_LINES + 5), title="t")
    assert (len(diff.lines), diff.num_left_out) == (MAX_LINES, 5)
