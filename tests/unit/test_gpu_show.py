"""The show for GPUs, as far as no GPU is needed: parts do not stop each other, and what they say is written."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from tests.gpu import show
from tests.gpu.outcome import Outcome, Setting, has_cuda, skipped
from tests.gpu.probe_parts import most_together


def setting_of(folder: Path, **more: float) -> Setting:
    return Setting("cpu", folder, **more)  # type: ignore[arg-type]


def test_part_that_fails_or_misses_a_module_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(setting: Setting) -> Outcome:
        raise RuntimeError("first line\nCUDA said no")

    def misses(setting: Setting) -> Outcome:
        import no_such_module_at_all  # type: ignore[import-not-found]

        return no_such_module_at_all  # type: ignore[no-any-return]

    made = {"breaks": breaks, "misses": misses, "works": lambda setting: Outcome(True, "2 ms", {"x": Path("y")})}
    monkeypatch.setattr(show, "PARTS", {name: name for name in made})
    monkeypatch.setattr(show, "load_part", made.__getitem__)
    assert not show.show(list(made), setting_of(tmp_path / "scratch"), tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["FAIL", "breaks"], ["skipped", "misses"], ["PASS", "works"]]
    assert "CUDA said no" in lines[0] and "no_such_module_at_all is not installed" in lines[1] and lines[2].endswith("2 ms")
    written = {name: json.loads((tmp_path / "out" / f"{name}.json").read_text()) for name in made}
    assert "RuntimeError" in written["breaks"]["figures"]["traceback"] and written["works"]["figures"] == {"x": "y"}
    assert [written[name]["is_fine"] for name in made] == [False, None, True]
    assert show.show(["misses", "works"], setting_of(tmp_path / "again"), tmp_path / "out")


def test_no_part_begins_after_the_limit(tmp_path: Path) -> None:
    def unreachable() -> show.Part:
        raise AssertionError("it was begun")

    assert show.run_part("late", unreachable, setting_of(tmp_path / "x", deadline=0.0)) == skipped("out of time")


@pytest.mark.parametrize("place", show.PARTS.values(), ids=show.PARTS)
def test_each_part_can_be_loaded(place: str) -> None:
    assert callable(show.load_part(place))


@pytest.mark.parametrize("name", ["memory", "graph"])
def test_part_that_needs_cuda_says_so_on_a_cpu(name: str, tmp_path: Path) -> None:
    outcome = show.run_part(name, lambda: show.load_part(show.PARTS[name]), setting_of(tmp_path / "x"))
    assert outcome.word == "skipped" and "no CUDA" in outcome.said


@pytest.mark.skipif(has_cuda(), reason="there is CUDA")
def test_everything_is_skipped_where_cuda_is_asked_for_and_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["show"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert show.main() == 0 and "skipped everything: no CUDA" in capsys.readouterr().out


def test_most_together_counts_spans_that_share_a_moment() -> None:
    for spans in itertools.product([(0.0, 2.0), (1.0, 3.0), (4.0, 5.0)], repeat=3):
        at = [sum(begin <= moment < end for begin, end in spans) for moment in (0.5, 1.5, 2.5, 4.5)]
        assert most_together(list(spans)) == max(at)
    assert most_together([]) == 0 and most_together([(0.0, 1.0), (1.0, 2.0)]) == 1
