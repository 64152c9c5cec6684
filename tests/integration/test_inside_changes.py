"""After an answer: hunks and keys inside a commit, releases inside a package, config keys that nothing reads any more.

The program is simulated: what a probe shows is computed from the files, packages and variables that its variant has.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bisect_train.changes.idle_keys import config_path_of, suspects_of
from bisect_train.changes.tree_files import read_file
from bisect_train.cli import driving
from bisect_train.cli.main import group
from bisect_train.coordinator import descent
from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import Ending, EndingKind
from bisect_train.core.probe import ProbeJob
from bisect_train.core.verdict import Criterion
from bisect_train.verdict.end_terms import Ends, EndsStatus
from bisect_train_workers.simulated import SimulatedExecutor, SimulatedRun
from tests.support.git_repos import UserRepo
from tests.support.simulated_bisection import fingerprint_of
from tests.support.wheels import make_wheel

Level = Callable[[UserRepo, ProbeJob], float]


class Desk:
    """The command line in a repository whose runs are simulated."""

    def __init__(self, user: UserRepo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.user, self.home = user, home
        self.jobs: list[ProbeJob] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("BISECT_TRAIN_HOME", str(home))
        monkeypatch.chdir(user.path)

    def run(
        self,
        level: Level,
        *args: str,
        command: tuple[str, ...] = ("python", "train.py"),
        ending: Callable[[ProbeJob], Ending | None] = lambda job: None,
    ) -> dict[str, Any]:
        """Run a bisection to its report.json; it must end with status 0."""

        class Context:
            def __init__(self, *_: Any) -> None:
                self.executor = SimulatedExecutor(script, slots=2)

            def __enter__(self) -> SimulatedExecutor:
                return self.executor

            def __exit__(self, *_: Any) -> None:
                self.executor.close()

        def script(job: ProbeJob) -> SimulatedRun:
            self.jobs.append(job)
            return SimulatedRun(fingerprint_of(level(self.user, job), seed_idx=job.spec.seed_idx, ending=ending(job)))

        self._monkeypatch.setattr(driving, "open_executor", Context)
        out = self.home / "out"
        result = CliRunner().invoke(group, ["run", *args, "--out", str(out), "-q", "--", *command], standalone_mode=False)
        assert result.exception is None and result.return_value == 0, result.output
        report: dict[str, Any] = json.loads((out / "report.json").read_text())
        return report

    def text(self, job: ProbeJob, path: str) -> str:
        """Return a file of a probe's checkout."""
        return read_file(self.user.open(self.home).git, job.spec.variant.tree, path) or ""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(UserRepo.create(tmp_path / "repo"), tmp_path / "home", monkeypatch)


def body(**changed: str) -> str:
    """Return a program of ten settings, far enough apart to be hunks of their own."""
    names = "abcdefghij"
    return "".join(f"{name} = {changed.get(name, '1')}\n" + f"print('{name}')\n" * 4 for name in names)


def squash_in(user: UserRepo) -> tuple[str, str]:
    """Write a history with a commit of seven settings and a note; return the good end and that commit."""
    good = user.commit({"train.py": body(), "README": "x"})
    user.commit({"README": "y"})
    squash = user.commit({"train.py": body(**dict.fromkeys("abcefgi", "2")), "README": "z"}, message="Squash")
    user.commit({"README": "w"})
    return good, squash


def test_hunk_inside_a_commit_is_named_and_written_as_a_patch(desk: Desk) -> None:
    user = desk.user
    good, squash = squash_in(user)

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if "f = 2" in desk.text(job, "train.py") else 1.0

    report = desk.run(level, "--good", good)
    (culprit,) = report["culprits"]
    assert culprit["changes"][0]["id"] == squash
    assert [part["kind"] for part in culprit["inside"]] == ["hunk"] and culprit["inside"][0]["id"] == "train.py:26,1"
    assert "inside it: hunk train.py:26,1" in report["summary"]
    patch = (desk.home / "out" / "culprit.patch").read_text()
    assert re.findall(r"^[-+]\w.*", patch, re.MULTILINE) == ["-f = 1", "+f = 2"]
    user.git("checkout", "-q", f"{squash}^")
    (user.path / "p.patch").write_text(patch)
    user.git("apply", "p.patch")
    assert "f = 2" in (user.path / "train.py").read_text()


def test_key_of_a_commit_that_changes_several_is_named(desk: Desk) -> None:
    user = desk.user
    good = user.commit({"train.py": "x", "conf.yaml": "lr: 1\nbeta: 1\nwd: 1\n"})
    commit = user.commit({"conf.yaml": "lr: 2\nbeta: 2\nwd: 2\n"}, message="tune")
    user.commit({"train.py": "y"})

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if "beta: 2" in desk.text(job, "conf.yaml") else 1.0

    (culprit,) = desk.run(level, "--good", good)["culprits"]
    assert culprit["changes"][0]["id"] == commit
    assert [(part["kind"], part["id"]) for part in culprit["inside"]] == [("config", "conf.yaml:beta")]
    again = desk.run(level, "--good", good, "--no-descend")
    assert [part["kind"] for part in again["culprits"][0]["inside"]] == ["file"]


def version_of(job: ProbeJob, name: str) -> str:
    return next((item.partition("==")[2] for item in job.spec.variant.packages if item.startswith(f"{name}==")), "")


def test_package_opens_into_its_releases(desk: Desk, tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "1.1", "1.2", "1.3", "2.0"):
        make_wheel(wheels, "toyopt", version, {"toyopt.py": f"V = '{version}'\n"})
    (tmp_path / "good.txt").write_text("toyopt==1.0\nother==1\nsame==3\n")
    (tmp_path / "bad.txt").write_text("toyopt==2.0\nother==2\nsame==3\n")
    desk.user.commit({"train.py": "x"})

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if version_of(job, "toyopt") >= "1.2" else 1.0

    envs = ("--good-env", str(tmp_path / "good.txt"), "--bad-env", str(tmp_path / "bad.txt"))
    places = ("--find-links", str(wheels), "--index-url", "none")
    report = desk.run(level, "--good", "HEAD", "--bad", "HEAD", *envs, *places)
    (culprit,) = report["culprits"]
    assert (culprit["changes"][0]["kind"], culprit["changes"][0]["id"]) == ("package", "toyopt")
    assert [part["id"] for part in culprit["inside"]] == ["toyopt 1.2"]
    assert report["num_changes"]["package"] == 2 and "1.1 -> 1.2" in report["summary"]
    others = {version_of(job, "other") for job in desk.jobs if version_of(job, "toyopt") in ("1.1", "1.2", "1.3")}
    assert len(others) == 1, "inside, the other packages stay as they were where it was named"


def test_key_that_the_commit_has_stopped_reading_is_told(desk: Desk) -> None:
    user = desk.user
    config = "warmup_ratio: 0.03\nlr: 0.1\n"
    good = user.commit({"train.py": "w = cfg['warmup_ratio']\nlr = cfg['lr']\n", "conf.yaml": config})
    user.commit({"notes": "1"})
    culprit = user.commit({"train.py": "w = cfg.get('warmup_steps', 0.1)\nlr = cfg['lr']\n"}, message="rename")
    user.commit({"notes": "2"})

    def level(_: UserRepo, job: ProbeJob) -> float:
        values = dict(line.split(": ") for line in desk.text(job, "conf.yaml").splitlines())
        reads = "warmup_ratio" in desk.text(job, "train.py")
        return (float(values["warmup_ratio"]) if reads else 2.0) + float(values["lr"])

    report = desk.run(level, "--good", good, "--config", "conf.yaml")
    assert [part["id"] for part in report["culprits"][0]["changes"]] == [culprit]
    (told,) = (text for text in report["warnings"] if "nothing reads it" in text)
    assert told.startswith(f"the key warmup_ratio is in conf.yaml, but nothing reads it from commit {culprit[:8]} on")
    repository = user.open(desk.home)
    assert [item.key for item in suspects_of(repository.git, parent=f"{culprit}^", commit=culprit, path="conf.yaml")] == [
        "warmup_ratio"
    ]


def test_config_that_travels_and_changes_is_told(desk: Desk) -> None:
    user = desk.user
    good = user.commit({"train.py": "x", "conf.yaml": "lr: 1\n"})
    user.commit({"conf.yaml": "lr: 3\n"})
    user.commit({"train.py": "bad"})

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if desk.text(job, "train.py") == "bad" else 1.0

    told = desk.run(level, "--good", good, "--config", "conf.yaml")["warnings"]
    assert any(text.startswith("conf.yaml changed within the range") for text in told)
    told = desk.run(level, "--good", good, "--config", "conf.yaml", "--hold-config", "good")["warnings"]
    assert "every commit ran with one conf.yaml: that of the good end" in told


def test_requirements_that_change_and_are_not_followed_are_told(desk: Desk) -> None:
    user = desk.user
    good = user.commit({"train.py": "x", "requirements.txt": "opt==1\n"})
    user.commit({"requirements.txt": "opt==2\n"})
    user.commit({"train.py": "bad"})

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if desk.text(job, "train.py") == "bad" else 1.0

    told = desk.run(level, "--good", good)["warnings"]
    assert any(text.startswith("requirements.txt changes within the range, and every commit runs in the same") for text in told)
    user.write("bisect-train.yaml", "environment: {files: [requirements.txt]}\n")
    assert not [text for text in desk.run(level, "--good", good)["warnings"] if "same environment" in text]
    assert {job.spec.variant.packages for job in desk.jobs[-8:]} <= {("opt==1",), ("opt==2",)}


def test_program_is_no_config_and_a_config_may_be_python(desk: Desk) -> None:
    user = desk.user
    head = user.commit({"train.py": "x", "config/tiny.py": "lr = 1\n", "conf.yaml": "lr: 1\n"})
    git = user.open(desk.home).git
    assert config_path_of(git, head, ("python", "train.py"), "") == ""
    assert config_path_of(git, head, ("python", "train.py", "config/tiny.py"), "") == "config/tiny.py"
    assert config_path_of(git, head, ("python", "train.py", "--config=conf.yaml"), "") == "conf.yaml"


def test_hunks_that_need_each_other_are_both_in_the_patch(desk: Desk) -> None:
    good, squash = squash_in(desk.user)

    def level(_: UserRepo, job: ProbeJob) -> float:
        text = desk.text(job, "train.py")
        return 2.0 if "b = 2" in text and "g = 2" in text else 1.0

    report = desk.run(level, "--good", good)
    (culprit,) = report["culprits"]
    assert culprit["changes"][0]["id"] == squash
    assert sorted(part["id"] for part in culprit["inside"]) == ["train.py:31,1", "train.py:6,1"]
    patch = (desk.home / "out" / "culprit.patch").read_text()
    assert re.findall(r"^\+\w.*", patch, re.MULTILINE) == ["+b = 2", "+g = 2"]
    assert report["cost"]["rounds"] > 0


def test_pair_of_a_commit_and_a_key_comes_with_its_four_states(desk: Desk, tmp_path: Path) -> None:
    user = desk.user
    good = user.commit({"train.py": "x"})
    for idx in range(4):
        user.commit({f"part{idx}.py": "x"})
    (tmp_path / "a.yaml").write_text("lr: 1\nwd: 1\nseed: 1\n")
    (tmp_path / "b.yaml").write_text("lr: 2\nwd: 2\nseed: 2\n")

    def level(_: UserRepo, job: ProbeJob) -> float:
        config = job.spec.variant.config
        return 2.0 if desk.text(job, "part2.py") and config is not None and "wd: 2" in config.text else 1.0

    configs = ("--good-config", str(tmp_path / "a.yaml"), "--bad-config", str(tmp_path / "b.yaml"))
    report = desk.run(level, "--good", good, *configs, command=("python", "train.py", "{config}"))
    (culprit,) = report["culprits"]
    commit = user.git("rev-parse", "HEAD~1")
    assert [(part["kind"], part["id"]) for part in culprit["changes"]] == [("commit", commit), ("config", "wd")]
    cells = culprit["two_by_two"]
    assert [cell["with"].split()[0] for cell in cells] == ["neither", commit[:8], "wd:", "both"]
    assert [round(cell["mean"]) for cell in cells] == [1, 1, 1, 2] and all(cell["num_runs"] for cell in cells)


def test_nothing_to_search_is_refused_before_anything_runs(desk: Desk, tmp_path: Path) -> None:
    head = desk.user.commit({"train.py": "x"})
    (tmp_path / "a.env").write_text("A=1\n")
    (tmp_path / "b.env").write_text("A=2\n")
    same = ("--good-env", str(tmp_path / "a.env"), "--bad-env", str(tmp_path / "a.env"))
    apart = ("--good-env", str(tmp_path / "a.env"), "--bad-env", str(tmp_path / "b.env"), "--exclude", "A")
    for options in (same, apart):
        args = ["run", "--good", head, "--bad", head, *options, "--", "python", "train.py"]
        with pytest.raises(InputError, match="nothing differs between the ends that is to be searched"):
            group.main(args, standalone_mode=False)
    assert not desk.jobs


def test_secret_of_a_variable_is_in_no_report(desk: Desk, tmp_path: Path) -> None:
    head = desk.user.commit({"train.py": "x"})
    (tmp_path / "a.env").write_text("API_TOKEN=old-secret\nLR=1\n")
    (tmp_path / "b.env").write_text("API_TOKEN=new-secret\nLR=2\n")

    def level(_: UserRepo, job: ProbeJob) -> float:
        return float(dict(job.spec.variant.env)["LR"])

    envs = ("--good-env", str(tmp_path / "a.env"), "--bad-env", str(tmp_path / "b.env"))
    report = desk.run(level, "--good", head, "--bad", head, *envs)
    assert [part["id"] for part in report["culprits"][0]["changes"]] == ["LR"]
    written = json.dumps(report) + (desk.home / "out" / "report.html").read_text()
    assert "-secret" not in written and 'API_TOKEN="$API_TOKEN"' in "\n".join(report["reproduce"])


def test_secrets_of_keys_arguments_and_addresses_are_run_and_told_nowhere(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = desk.user.commit({"train.py": "x"})
    options = []
    for end, number in (("good", 1), ("bad", 2)):
        (tmp_path / f"{end}.yaml").write_text(f"lr: {number}\nwandb: {{api_key: s3cret-{number}}}\n")
        (tmp_path / f"{end}.txt").write_text(f"toyopt @ https://me:s3cret-{number}@host/toyopt-{number}.0-py3-none-any.whl\n")
        (tmp_path / f"{end}.env").write_text(f"DB=postgres://me:s3cret-{number}@host/db\n")
        options += [f"--{end}-config", str(tmp_path / f"{end}.yaml"), f"--{end}-env", str(tmp_path / f"{end}.txt")]
        options += [f"--{end}-env", str(tmp_path / f"{end}.env")]
    training = ("python", "train.py", "--config", "{config}", "--hf-token", "s3cret-1", "--proxy=https://me:s3cret-1@host/")
    bad_command = shlex.join(training).replace("s3cret-1", "s3cret-2").replace("'", "")
    options += ["--bad-command", bad_command, "--index-url", "https://me:s3cret-0@host/simple"]

    def level(_: UserRepo, job: ProbeJob) -> float:
        assert job.spec.variant.config is not None
        return 2.0 if "lr: 2" in job.spec.variant.config.text else 1.0

    report = desk.run(level, "--good", head, "--bad", head, *options, command=training)
    assert [part["id"] for part in report["culprits"][0]["changes"]] == ["lr"]
    said = [json.dumps(report), (desk.home / "out" / "report.html").read_text()]
    for args in (["log"], ["log", "--json"], ["report", "--no-color"], ["list"], ["status"], ["log", "--observations"]):
        said.append(CliRunner().invoke(group, args, standalone_mode=False).output)
    ends = ["--good", head, "--bad", head, *options, "--", *training]
    said.append(CliRunner().invoke(group, ["diff", "--json", str(tmp_path / "d.json"), *ends], standalone_mode=False).output)
    said.append(CliRunner().invoke(group, ["run", "--dry-run", *ends], standalone_mode=False).output)
    said.append((tmp_path / "d.json").read_text())
    assert all(said) and not [text for text in said if "s3cret" in text]
    assert all("(hidden)" in text for text in (said[0], said[1], said[-1]))
    assert "api_key: (hidden)" in said[3]
    reproduce = "\n".join(report["reproduce"])
    assert (
        "--hf-token '(hidden)'" in reproduce and 'DB="$DB"' in reproduce and "put your own secrets where (hidden)" in reproduce
    )
    bad = next(job for job in desk.jobs if "lr: 2" in job.spec.variant.config.text).spec.variant  # type: ignore[union-attr]
    assert bad.config is not None and "api_key: s3cret-2" in bad.config.text
    assert "s3cret-2" in bad.command and "s3cret-2" in dict(bad.env)["DB"] and "s3cret-2" in bad.packages[0]
    assert desk.jobs[0].settings.environment.index == "https://me:s3cret-0@host/simple"


def test_nothing_is_said_of_keys_where_the_culprit_keeps_the_program_from_running(desk: Desk) -> None:
    """Two runs that crash before they read a key are equal, whatever the key is."""
    user = desk.user
    good = user.commit({"train.py": "w = cfg['warmup']\n", "conf.yaml": "warmup: 0.03\n"})
    user.commit({"notes": "1"})
    user.commit({"train.py": "w = cfg.warmup\n"}, message="crashes before it reads anything")
    user.commit({"notes": "2"})

    def ending(job: ProbeJob) -> Ending | None:
        is_broken = "cfg.warmup" in desk.text(job, "train.py")
        return (
            Ending(EndingKind.CRASHED, exit_status=1, signature="AttributeError: cfg", message="no warmup")
            if is_broken
            else None
        )

    def level(_: UserRepo, job: ProbeJob) -> float:
        return float(desk.text(job, "conf.yaml").split()[1]) if ending(job) is None else 0.0

    report = desk.run(level, "--good", good, "--config", "conf.yaml", ending=ending)
    assert report["status"] == "isolated" and not any("nothing reads it" in text for text in report["warnings"])


def test_symptom_that_always_comes_back_is_no_proof_that_bits_repeat() -> None:
    separated = Ends(EndsStatus.SEPARATED, repeats_bitwise=True)
    assert replace(separated, criterion=Criterion.STATISTICAL).do_bits_repeat
    assert not replace(separated, criterion=Criterion.SYMPTOM).do_bits_repeat


def test_report_of_a_named_package_asks_no_index_again(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "good.txt").write_text("toyopt==1.0\nother==1\n")
    (tmp_path / "bad.txt").write_text("toyopt==2.0\nother==2\n")
    desk.user.commit({"train.py": "x"})

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if version_of(job, "toyopt") == "2.0" else 1.0

    envs = ("--good-env", str(tmp_path / "good.txt"), "--bad-env", str(tmp_path / "bad.txt"))
    report = desk.run(level, "--good", "HEAD", "--bad", "HEAD", *envs, "--index-url", "none")  # no place has these releases
    assert [part["id"] for part in report["culprits"][0]["changes"]] == ["toyopt"]
    monkeypatch.setattr(descent, "releases_between", lambda *_, **__: pytest.fail("a report asks for releases"))
    result = CliRunner().invoke(group, ["report"], standalone_mode=False)
    assert result.exception is None and "What is inside package toyopt was not looked at: toyopt 2.0 was not found" in " ".join(
        result.output.split()
    )


def test_commit_that_moves_two_packages_is_looked_into_where_runs_follow_its_list(desk: Desk, tmp_path: Path) -> None:
    user = desk.user
    good = user.commit({"train.py": "x", "requirements.txt": "toya==1\ntoyb==1\n"})
    user.commit({"README": "1"})
    bump = user.commit({"requirements.txt": "toya==2\ntoyb==2\n"}, message="deps: newer ones")
    user.commit({"README": "2"})
    (tmp_path / "recipe.yaml").write_text("environment: {files: [requirements.txt], index: none}\n")

    def level(_: UserRepo, job: ProbeJob) -> float:
        return 2.0 if "toyb==2" in job.spec.variant.packages else 1.0

    report = desk.run(level, "--good", good, "--recipe", str(tmp_path / "recipe.yaml"))
    (culprit,) = report["culprits"]
    assert culprit["changes"][0]["id"] == bump
    assert [part["id"] for part in culprit["inside"]] == ["requirements.txt:toyb"]
