"""The demo's repository: same hashes everywhere, the shape that the tour promises, a culprit that comes out and goes in."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from bisect_train.cli import demo_command, run_command
from bisect_train.core.question import Question
from bisect_train.demo import DemoRepo, build, write_check_configs

# Change these on purpose only: recorded bisections and documentation name them.
GOOD = "2159dd75657cfc71a86d2422e5d2d2bf5cec91be"
BAD = "bacbb1aa859d05cfe24a5c16eaa7192afb262031"
CULPRIT = "6afece463348d5ab76a83600927f6727bb4ab278"

Trace: TypeAlias = list[tuple[float, float]]
STEP_LINE = re.compile(r"^step \d+ \| loss ([0-9.]+) \| lr ([0-9.]+)", re.MULTILINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoRepo:
    return build(tmp_path_factory.mktemp("demo") / "charlm")


@pytest.fixture(scope="module")
def main_line(demo: DemoRepo) -> list[str]:
    """Return the first-parent chain, oldest first."""
    return git(demo.path, "rev-list", "--first-parent", "--reverse", "main").split()


def git(folder: Path, *arguments: str) -> str:
    """Run git without the user's settings and return its output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    person = {f"GIT_{who}_{what}": "demo" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    isolated = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=kept | isolated | person, check=True, capture_output=True, text=True).stdout


def check_out(demo: DemoRepo, revision: str, folder: Path) -> Path:
    git(demo.path, "worktree", "add", "--quiet", "--detach", str(folder), revision)
    return folder


@pytest.fixture(scope="module")
def traces(demo: DemoRepo, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    """Return 3 steps of the two ends, the bad end without the culprit and the good end with it."""
    folder = tmp_path_factory.mktemp("variants")
    revisions = {"good": demo.good, "bad": demo.bad, "healed": demo.bad, "broken": demo.good}
    checkouts = {name: check_out(demo, revision, folder / name) for name, revision in revisions.items()}
    git(checkouts["healed"], "revert", "--no-edit", demo.culprit)
    git(checkouts["broken"], "cherry-pick", demo.culprit)
    with ThreadPoolExecutor(max_workers=2) as pool:
        return dict(zip(checkouts, pool.map(train_3_steps, checkouts.values()), strict=True))


def train_3_steps(checkout: Path) -> Trace:
    """Train with the checkout's program; return loss in nats and learning rate of each of the 3 steps."""
    config = yaml.safe_load((checkout / "config.yaml").read_text())
    config["training"]["max_steps"] = 3
    config["logging"] |= {"every": 1, "digits": 9}
    short = checkout / "short.yaml"
    short.write_text(yaml.safe_dump(config))
    command = [sys.executable, "train.py", "--config", str(short)]
    done = subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True, timeout=60)
    return [(float(loss), float(rate)) for loss, rate in STEP_LINE.findall(done.stdout)]


def list_leaves(config: dict[str, object], prefix: str = "") -> dict[str, object]:
    leaves: dict[str, object] = {}
    for key, value in config.items():
        leaves |= list_leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return leaves


def test_build_twice_gives_the_known_hashes(demo: DemoRepo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "gitconfig"
    settings.write_text("[core]\n\tautocrlf = true\n[commit]\n\tgpgsign = true\n[init]\n\tdefaultBranch = trunk\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere.git"))
    second = build(tmp_path / "second")
    assert second == replace(demo, path=second.path)
    assert (demo.good, demo.bad, demo.culprit) == (GOOD, BAD, CULPRIT)
    assert not (tmp_path / "elsewhere.git").exists()


def test_build_into_a_filled_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(FileExistsError, match="not empty"):
        build(tmp_path)


def test_work_tree_is_clean_and_holds_one_branch(demo: DemoRepo) -> None:
    assert git(demo.path, "status", "--porcelain") == ""
    assert git(demo.path, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]
    assert git(demo.path, "fsck", "--full", "--strict") == ""


def test_history_has_the_promised_shape(demo: DemoRepo, main_line: list[str]) -> None:
    assert (main_line[0], main_line[-1], len(main_line) - 1) == (demo.good, demo.bad, demo.num_commits)
    assert demo.num_commits == 60
    assert len(git(demo.path, "rev-list", "--first-parent", "--merges", "main").split()) == 3
    culprit_idx = main_line.index(demo.culprit)
    decoys = [main_line.index(decoy) for decoy in demo.decoys]
    assert len(decoys) >= 5
    assert sum(idx < culprit_idx for idx in decoys) >= 2
    assert sum(idx > culprit_idx for idx in decoys) >= 2
    broken = [main_line.index(commit) for commit in demo.untestable]
    assert broken == list(range(broken[0], broken[0] + 3))
    assert broken[-1] < culprit_idx - 1


def test_merges_hold_what_git_would_merge(demo: DemoRepo, tmp_path: Path) -> None:
    for number, merge in enumerate(git(demo.path, "rev-list", "--first-parent", "--merges", "main").split()):
        checkout = check_out(demo, f"{merge}^1", tmp_path / str(number))
        git(checkout, "merge", "--quiet", "--no-ff", "-m", "again", f"{merge}^2")
        assert git(checkout, "diff", "--name-only", merge) == ""


def test_culprit_touches_many_lines(demo: DemoRepo) -> None:
    rows = git(demo.path, "show", "--numstat", "--format=", demo.culprit).splitlines()
    assert sum(int(count) for row in rows for count in row.split()[:2]) >= 80


def test_programs_of_all_four_variants_run(traces: dict[str, Trace]) -> None:
    assert {name: len(trace) for name, trace in traces.items()} == {"good": 3, "bad": 3, "healed": 3, "broken": 3}


def test_bad_end_without_the_culprit_has_the_good_schedule(traces: dict[str, Trace]) -> None:
    assert traces["healed"][0][0] == traces["bad"][0][0]
    assert [rate for _, rate in traces["healed"]] == [rate for _, rate in traces["good"]]


def test_good_end_with_the_culprit_has_the_bad_schedule(traces: dict[str, Trace]) -> None:
    assert traces["broken"][0][0] == traces["good"][0][0]
    assert [rate for _, rate in traces["broken"]] == [rate for _, rate in traces["bad"]]
    assert traces["good"][-1][1] > 10 * traces["bad"][-1][1]


def test_check_configs_differ_in_eight_keys_each(demo: DemoRepo, tmp_path: Path) -> None:
    configs = write_check_configs(tmp_path)
    base, harmful, harmless = (
        list_leaves(yaml.safe_load(path.read_text())) for path in (configs.base, configs.harmful, configs.harmless)
    )
    last = list_leaves(yaml.safe_load((demo.path / "config.yaml").read_text()))
    assert base == last | {"optimizer.warmup_epochs": 0.0}
    for other in (harmful, harmless):
        assert base.keys() == other.keys()
        assert sum(base[key] != other[key] for key in base) == 8
    assert base[configs.harmful_key] != harmful[configs.harmful_key]


def test_demo_asks_what_the_command_that_it_prints_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[Question] = []

    def note(desk: object, question: Question, *args: object, **more: object) -> int:
        questions.append(question)
        return 0

    for module in (demo_command, run_command):
        monkeypatch.setattr(module, "start_bisection", note)
    monkeypatch.setenv("BISECT_TRAIN_HOME", str(tmp_path / "home"))
    demo_command.command.main(["--dir", str(tmp_path / "charlm")], standalone_mode=False)
    (said,) = re.findall(r"same as: cd (\S+) && bisect-train run (.*)", capsys.readouterr().err)
    monkeypatch.chdir(said[0])
    run_command.command.main(shlex.split(said[1]), standalone_mode=False)
    of_demo, of_run = questions
    assert of_demo.settings.warm and of_demo == of_run
