"""What is looked at before anything runs: judging commands that cannot run, notes, how many probes it may take."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.command_bench import BOTH, TRAINING, Run
from tests.support.git_repos import UserRepo

# ---- judging commands ------------------------------------------------------------------------------------------------


def test_judge_in_the_working_tree_alone_is_refused_with_its_whole_path(run: Run, repo: UserRepo) -> None:
    (repo.path / "judge.py").write_text("raise SystemExit(0)\n")
    try:
        status, _, err = run(*BOTH, "--judge", "python judge.py --strict 'a b'", *TRAINING)
    finally:
        (repo.path / "judge.py").unlink()
    assert status == 2 and "it runs in the checkout of each probe, and a relative path is relative to that" in err
    place = str(repo.path / "judge.py")
    given = err.split("give its whole path: --judge ")[1].strip()
    assert shlex.split(shlex.split(given)[0]) == ["python", place, "--strict", "a b"], "as it can be pasted"


def test_judge_that_one_end_lacks_is_refused(run: Run, repo: UserRepo) -> None:
    """Python ends with status 2 for a script that is not there, which would call that end bad."""
    repo.git("checkout", "-q", "-b", "judged")
    commit = repo.commit({"judge.py": "raise SystemExit(0)\n"}, message="judge")
    good = repo.git("rev-parse", "old")[:12]
    status, _, err = run("run", "--good", "old", "--bad", "judged", "--judge", "python judge.py", *TRAINING)
    repo.git("checkout", "-q", "main")
    assert status == 2 and f"'judge.py' is not tracked by git at the good end {good}" in err and commit[:12] not in err


@pytest.mark.parametrize("judge", ["python train.py", "sh -c 'exit 0'", "python -c 'pass'", "true", "python {out}/judge.py"])
def test_judge_that_a_checkout_can_have_is_taken(run: Run, judge: str) -> None:
    status, _, err = run(*BOTH, "--judge", judge, *TRAINING)
    assert status == 0, err


def test_judge_that_a_recipe_links_or_a_fixup_brings_is_taken(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    (tmp_path / "judge.py").write_text("raise SystemExit(0)\n")
    recipe.write_text(f"judge: [python, tools/judge.py]\ndata: {{link: [{{from: {tmp_path}/judge.py, to: tools/judge.py}}]}}\n")
    assert run(*BOTH, "--recipe", str(recipe), *TRAINING)[0] == 0
    patch = "diff --git a/made.py b/made.py\nnew file mode 100644\n--- /dev/null\n+++ b/made.py\n@@ -0,0 +1 @@\n+print(1)\n"
    (tmp_path / "fix.patch").write_text(patch)
    assert run(*BOTH, "--fixup", str(tmp_path / "fix.patch"), "--judge", "python made.py", *TRAINING)[0] == 0


# ---- what is told before anything runs -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "\n# nothing yet\n\n"])
def test_skip_file_without_a_revision_is_noted(run: Run, tmp_path: Path, text: str) -> None:
    place = tmp_path / "skip.txt"
    place.write_text(text)
    status, _, err = run(*BOTH, "--skip-file", str(place), *TRAINING)
    assert status == 0 and err == f"bisect-train: warning: --skip-file {place} names no revision, so it skips none\n"
    place.write_text("HEAD~2\n")
    assert run(*BOTH, "--skip-file", str(place), *TRAINING)[2] == ""


@pytest.mark.parametrize(
    ("args", "said", "hidden"),
    [
        ((), "8 to 18 to prove the ends, about 2 to search, 6 to 60 to prove the answer: 16 to 80 in all\n", "--max-probes"),
        ((), "many more where a failure comes and goes, 16 to 48 + 2 to 400 + 48 to 240: 66 to 688 in all\n", "--max-probes"),
        (("--max-probes", "40"), ": 16 to 40 in all (--max-probes; up to 80 without)\n", "in all\n"),
        (("--max-probes", "40"), "--max-probes 40 ends it before an answer, which takes 66 at least\n", "in all\n"),
        (("--max-probes", "9"), "--max-probes 9 ends it before an answer, which takes 16 at least\n", "in all\n"),
        (("--seeds", "24"), "8 to 50 to prove the ends, about 2 to search, 6 to 144 to prove the answer", "--max-probes"),
        (("--criterion", "statistical"), ": 16 to 80 in all\n", "comes and goes"),
        (("--judge", "true"), "many more where a failure comes and goes", "--max-probes"),
    ],
)
def test_dry_run_says_how_many_probes_it_takes_at_least_and_at_most(
    run: Run, args: tuple[str, ...], said: str, hidden: str
) -> None:
    status, out, err = run(*BOTH, *args, *TRAINING)
    assert status == 0 and said in out and hidden not in out, err
