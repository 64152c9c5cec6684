"""What a program's log tells: metrics, failures, and a size that stays bounded."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from bisect_train.core.probe import MetricPattern
from bisect_train_workers.bounded_log import BoundedLog
from bisect_train_workers.number_group import find_group
from bisect_train_workers.program_log import find_child_status, find_failure, find_metrics, parse_number, read_log

CHECKOUT = Path("/co")
TRACEBACK = """Traceback (most recent call last):
  File "/co/train.py", line 12, in <module>
    main()
  File "/co/model.py", line 3, in forward
    return x @ w
           ~~^~~
  File "/env/lib/python3.11/site-packages/torch/x.py", line 1, in inner
    raise
{error}
"""


def test_metrics_split_progress_bars_and_drop_colours(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(
        b"\x1b[32mstep 1\x1b[0m loss: 4.5\r\x1b[1mstep 2 loss: 3,000.5\r\nstep 3 loss: nan\n\xff step 4 loss: -inf"
    )
    (series,) = find_metrics(read_log(tmp_path / "log"), [MetricPattern("loss", r"step (?P<step>\d+).*loss: (?P<value>\S+)")])
    assert series.steps == (1, 2, 3, 4)
    assert series.values[:2] == (4.5, 3000.5) and math.isnan(series.values[2]) and series.values[3] == -math.inf


def test_metrics_take_the_first_group_or_the_whole_match() -> None:
    first, whole, none = find_metrics(
        "val 1.5 2.5\n",
        [MetricPattern("a", r"val ([\d.]+) ([\d.]+)"), MetricPattern("b", r"2\.\d"), MetricPattern("c", "x(y)")],
    )
    assert (first.values, whole.values, none.values) == ((1.5,), (2.5,), ())


@pytest.mark.parametrize("shown", ["nan", "NaN", "-nan", "inf", "-inf", "+Infinity", "INF"])
def test_metrics_of_a_pattern_of_digits_take_nan_and_inf(shown: str) -> None:
    text = f"val_loss 2.5\nval_loss {shown}, step 2\nval_loss info 3\nval_loss nanoseconds\n"
    (series,) = find_metrics(text, [MetricPattern("loss", "val_loss ([0-9.]+)")])
    assert [str(value) for value in series.values] == ["2.5", str(float(shown))]


def test_metrics_keep_the_steps_of_lines_with_nan() -> None:
    text = "3: train 1.0 val 2.0\n4: train 1.5 val NaN\n"
    pattern = MetricPattern("val", r"^(?P<step>\d+): train [\d.]+ val (?P<value>\d+(\.\d+)?)$")
    (series,) = find_metrics(text, [pattern])
    assert series.steps == (3, 4) and math.isnan(series.values[1])


@pytest.mark.parametrize(
    "pattern", [r"loss [0-9.]+", r"(?:loss) \d", "loss(?x: # )\n )(\\d)", r"loss (?P<value>(?P<whole>\d)(?P=whole))(?P=whole)"]
)
def test_metrics_of_a_pattern_that_cannot_be_rewritten_pass_nan_over(pattern: str) -> None:
    (series,) = find_metrics("loss nan inf\n", [MetricPattern("loss", pattern)])
    assert series.values == ()


@pytest.mark.parametrize(
    ("pattern", "number", "content"),
    [
        (r"loss ([0-9.]+)", 1, "[0-9.]+"),
        (r"\((?:a|(?=b)|(?!c)|(?<=d))[()\]](x(y))", 1, "x(y)"),
        (r"[]()](?P<step>\d+)[^]()](?P<value>[\d)]+\))(?P=step)", 2, r"[\d)]+\)"),
        (r"(a)(?#b (c)(?i:d)?(?(1)e|f)(g)", 2, "g"),
        ("(a) # (not\n (b)", 2, "b"),
        (r"\\(a)", 1, "a"),
    ],
)
def test_find_group_tells_which_parentheses_capture(pattern: str, number: int, content: str) -> None:
    assert re.compile(pattern, re.VERBOSE if "# (" in pattern else 0)
    begin, end = find_group(pattern, number, is_verbose="# (" in pattern)
    assert pattern[begin:end] == content


@pytest.mark.parametrize(
    ("text", "number"), [("1,234.5", 1234.5), ("1e-4", 1e-4), ("-3", -3.0), ("n/a", None), ("", None), (None, None)]
)
def test_parse_number(text: str | None, number: float | None) -> None:
    assert parse_number(text) == number


def test_failure_is_the_last_own_traceback() -> None:
    text = (
        TRACEBACK.format(error="KeyError: 'a'")
        + "During handling ...\n"
        + TRACEBACK.format(error="torch.cuda.OutOfMemoryError: 3 GiB")
    )
    text += TRACEBACK.format(error="torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
    failure = find_failure(text, CHECKOUT)
    assert failure is not None and failure.exc_type == "OutOfMemoryError"
    assert failure.signature.endswith("@ <module> > forward")


def test_failure_of_a_rank_loses_its_prefix() -> None:
    text = "".join(
        f"[rank1]: {line}\n" for line in TRACEBACK.format(error="ModuleNotFoundError: No module named 'wandb.sdk'").splitlines()
    )
    failure = find_failure(text, CHECKOUT)
    assert failure is not None and failure.missing_module == "wandb.sdk"


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):\n  File", "all is well\n"])
def test_failure_of_a_log_without_one_is_none(text: str) -> None:
    assert find_failure(text, CHECKOUT) is None


def test_child_status_is_the_root_cause() -> None:
    text = "[1]:\n  exitcode  : -15 (pid: 1)\nRoot Cause (first observed failure):\n  exitcode  : -11 (pid: 2)\n"
    assert find_child_status(text) == -11 and find_child_status("") is None


@pytest.mark.parametrize("sizes", [[10], [10, 5], [100], [10] * 30, [1] * 100, [95, 1, 200]])
def test_bounded_log_keeps_head_and_tail(tmp_path: Path, sizes: list[int]) -> None:
    data = [bytes([65 + idx % 26]) * size for idx, size in enumerate(sizes)]
    with BoundedLog(tmp_path / "log", head_bytes=20, tail_bytes=30) as log:
        for part in data:
            log.write(part)
    whole, kept = b"".join(data), (tmp_path / "log").read_bytes()
    assert kept.startswith(whole[:20]) and kept.endswith(whole[-30:])
    assert (log.dropped_bytes == 0) == (kept == whole)
