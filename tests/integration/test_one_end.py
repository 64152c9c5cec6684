"""`probe`, `compare` and `check` with ends that differ in more than commits: which variants they run, on simulated workers."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisect_train.cli import singles
from bisect_train.core.changes import Variant
from bisect_train.core.probe import ProbeJob
from bisect_train.core.question import Question
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.command_bench import Run
from tests.support.git_repos import UserRepo
from tests.support.simulated_bisection import fingerprint_of

TRAINING = ("--", "python", "train.py")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[ProbeJob]:
    """The probes that `probe` and `compare` run, in their order; all of them are healthy."""
    ran: list[ProbeJob] = []

    def script(job: ProbeJob) -> SimulatedRun:
        ran.append(job)
        return SimulatedRun(fingerprint_of(1.0, seed_idx=job.spec.seed_idx))

    @contextmanager
    def open_executor(question: Question, home: Path) -> Iterator[SimulatedExecutor]:
        yield SimulatedExecutor(script, slots=1)

    monkeypatch.setattr(singles, "open_executor", open_executor)
    return ran


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with lists of packages, variables and data."""
    yaml = importlib.metadata.version("pyyaml")
    texts = {"old.txt": f"pyyaml=={yaml}\ntoyopt==1.0\n", "new.txt": f"pyyaml=={yaml}\nclick>=1\ntoyopt==2.0\n"}
    texts |= {"old.env": "A=1\nKEPT=x\n", "new.env": "A=2\nKEPT=x\n", "v1": "one", "v2": "two"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def _ran(jobs: list[ProbeJob]) -> list[Variant]:
    return [job.spec.variant for job in jobs]


def _succeed(run: Run, *args: str) -> str:
    status, out, err = run(*args)
    assert status == 0, err
    return " ".join(out.split())


def test_probe_runs_with_the_packages_variables_and_data_that_it_was_given(run: Run, jobs: list[ProbeJob], files: Path) -> None:
    env = ("--env", str(files / "new.txt"), "--env", str(files / "new.env"))
    _succeed(run, "probe", *env, "--data", f"corpus={files / 'v2'}", "--index-url", "none", *TRAINING)
    (variant,) = _ran(jobs)
    assert variant.packages == ("toyopt==2.0",)  # what is installed as listed, or within the range, is not laid
    assert dict(variant.env) == {"A": "2", "KEPT": "x"}
    assert [(link.target, Path(link.source).name) for link in variant.links] == [("corpus", "v2")]
    assert jobs[0].settings.environment.index == "none"


def test_probe_lays_the_whole_list_where_the_commits_own_files_name_packages_too(
    run: Run, jobs: list[ProbeJob], files: Path, repo: UserRepo, tmp_path: Path
) -> None:
    (tmp_path / "recipe.yaml").write_text("environment: {files: [requirements.txt]}\n")
    _succeed(run, "probe", "--recipe", str(tmp_path / "recipe.yaml"), "--env", str(files / "old.txt"), *TRAINING)
    assert [text.partition("==")[0] for text in _ran(jobs)[0].packages] == ["pyyaml", "toyopt"]


def test_probe_without_options_is_the_plain_variant(run: Run, jobs: list[ProbeJob]) -> None:
    _succeed(run, "probe", *TRAINING)
    (variant,) = _ran(jobs)
    assert (variant.packages, variant.env, variant.links, variant.command) == ((), (), (), ("python", "train.py"))


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--data", "corpus"), "--data corpus: this is not TARGET=PATH"),
        (("--data", "corpus=/no/such"), "correct --data"),
        (("--hydra", "train"), "does not say where the Hydra configs are"),
        (("--image", "x"), "no launcher says how to start it"),
        (("--env", "/no/such.txt"), "there is no such file"),
    ],
)
def test_probe_names_its_own_options_in_errors(run: Run, jobs: list[ProbeJob], args: tuple[str, ...], said: str) -> None:
    status, _, err = run("probe", *args, *TRAINING)
    assert status == 2 and said in err and "--good" not in err
    assert not jobs


def test_compare_gives_a_the_good_options_and_b_the_bad_ones(run: Run, jobs: list[ProbeJob], files: Path) -> None:
    options = [f"--{end}-{kind}" for kind in ("env", "env", "data") for end in ("good", "bad")]
    values = ["old.txt", "new.txt", "old.env", "new.env", "corpus=v1", "corpus=v2"]
    given = [value.replace("corpus=", f"corpus={files}/") if "=" in value else str(files / value) for value in values]
    ends = [word for pair in zip(options, given, strict=True) for word in pair]
    more = ["--bad-command", "python train.py --lr 0.3 --api-key s3cret", "--bad-ranks", "2"]
    out = _succeed(run, "compare", "HEAD~1", "HEAD", *ends, *more, *TRAINING)
    left, right = _ran(jobs)
    assert left.packages == ("toyopt==1.0",) and right.packages == ("click>=1", "toyopt==2.0")
    assert dict(left.env)["A"] == "1" and dict(right.env)["A"] == "2"
    assert [Path(variant.links[0].source).name for variant in (left, right)] == ["v1", "v2"]
    assert left.command == ("python", "train.py") and right.command == ("python", "train.py", *more[1].split()[2:])
    assert (left.ranks, right.ranks) == (None, 2)
    assert left.tree != right.tree
    for line in (
        "toyopt: 1.0 -> 2.0",
        "A: 1 -> 2",
        "--lr: (absent) -> 0.3",
        "ranks: 1 -> 2",
        "--api-key: (absent) -> (hidden)",
    ):
        assert f"differs {line}" in out
    assert "s3cret" not in out and "(" in out and "good options" in out


def test_compare_of_two_configs_at_one_revision(run: Run, jobs: list[ProbeJob], tmp_path: Path) -> None:
    for name, lr in (("a.yaml", 1), ("b.yaml", 2)):
        (tmp_path / name).write_text(f"lr: {lr}\n")
    ends = ["--good-config", str(tmp_path / "a.yaml"), "--bad-config", str(tmp_path / "b.yaml")]
    _succeed(run, "compare", "HEAD", "HEAD", *ends, *TRAINING, "{config}")
    assert [variant.config.text for variant in _ran(jobs) if variant.config] == ["lr: 1\n", "lr: 2\n"]


def test_compare_composes_each_end_at_its_own_commit(run: Run, jobs: list[ProbeJob], repo: UserRepo, tmp_path: Path) -> None:
    pytest.importorskip("hydra", reason="Hydra is an optional extra")
    (tmp_path / "recipe.yaml").write_text("config: {hydra: conf}\n")
    repo.commit({"conf/train.yaml": "lr: 0.1\n"}, message="hydra")
    repo.commit({"conf/train.yaml": "lr: 0.1\nnew: 1\n"}, message="a key that only the newer commit has")
    ends = ["--good-hydra", "train lr=0.2", "--bad-hydra", "train new=3"]
    words = ("compare", "HEAD~1", "HEAD", "--recipe", str(tmp_path / "recipe.yaml"), *ends)
    try:
        out = _succeed(run, *words, *TRAINING, "{overrides}")
    finally:
        repo.git("reset", "-q", "--hard", "HEAD~2")
    assert [variant.command[2:] for variant in _ran(jobs)] == [("lr=0.2",), ("new=3",)]
    assert "Hydra composition: train lr=0.2 -> train new=3" in out


def test_compare_refuses_a_script_that_one_of_its_revisions_lacks(run: Run, jobs: list[ProbeJob], repo: UserRepo) -> None:
    repo.commit({"other.py": "pass\n"}, message="another script")
    try:
        status, _, err = run("compare", "HEAD~1", "HEAD", "--", "python", "other.py")
        assert status == 2 and "the script 'other.py' is not tracked by git at commit" in err
        _succeed(run, "compare", "HEAD~1", "HEAD", "--bad-command", "python other.py", *TRAINING)
    finally:
        repo.git("reset", "-q", "--hard", "HEAD~1")
    assert [variant.command for variant in _ran(jobs)] == [("python", "train.py"), ("python", "other.py")]


def _check(run: Run, *args: str) -> str:
    """Return what `check --dry-run` says."""
    return _succeed(run, "check", "--dry-run", *args)


def test_check_takes_ends_beside_the_config(run: Run, files: Path) -> None:
    ends = ["--good-env", str(files / "old.txt"), "--bad-env", str(files / "new.txt"), "--bad-ranks", "2"]
    said = _check(run, "conf.yaml", "--set", "lr=7", *ends, "--index-url", "none", *TRAINING, "{config}")
    assert "1 config key" in said and "2 packages" in said and "1 launch setting" in said


def test_check_of_one_config_with_other_ends_asks_about_these_alone(run: Run, files: Path) -> None:
    data = ["--good-data", f"corpus={files / 'v1'}", "--bad-data", f"corpus={files / 'v2'}"]
    said = _check(run, "conf.yaml", *data, *TRAINING, "{config}")
    assert "1 data" in said and "config key" not in said
    assert "python train.py '{config}'" in said


def test_check_leaves_changes_out_as_run_does(run: Run, files: Path) -> None:
    ends = ["--bad-env", str(files / "new.env"), "--bad-ranks", "2", "--only", "launch"]
    said = _check(run, "conf.yaml", *ends, *TRAINING, "{config}")
    assert "1 launch setting" in said and "variable" not in said


def test_check_of_hydra_compositions_names_no_config(run: Run, repo: UserRepo, tmp_path: Path) -> None:
    pytest.importorskip("hydra", reason="Hydra is an optional extra")
    (tmp_path / "recipe.yaml").write_text("config: {hydra: conf}\n")
    repo.commit({"conf/train.yaml": "lr: 0.1\n"}, message="hydra")
    ends = ["--good-hydra", "train", "--bad-hydra", "train lr=3"]
    try:
        said = _check(run, "--recipe", str(tmp_path / "recipe.yaml"), *ends, *TRAINING, "{overrides}")
    finally:
        repo.git("reset", "-q", "--hard", "HEAD~1")
    assert "1 config key" in said and "command python train.py '{overrides}'" in said
