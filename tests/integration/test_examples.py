"""The files of examples/ci and examples/cluster: their own linter or schema takes them, their commands are ours, and their
scripts do what they say. Not checked: that GitHub, Kubernetes or Slurm run them, and the rules in CEL of KubeRay.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import rich_click as click
import yaml

from bisect_train.cli.main import group
from tests.support.report_cases import sha

ROOT = Path(__file__).parents[2]
CI, CLUSTER = ROOT / "examples" / "ci", ROOT / "examples" / "cluster"
WORKFLOWS = sorted((CI / "github-actions").glob("*.yml"))
SCRIPTS = [CI / "cron" / "nightly.sh", CLUSTER / "bisect.slurm"]
PAGES = [*CI.rglob("*.*"), *CLUSTER.rglob("*.*"), ROOT / "docs" / "telling.md"]
VALUES = {
    "REPOSITORY": "acme/trainer", "NUMBER": "12", "HEAD": sha("head"), "TELL_ISSUE": "github-issue:acme/trainer",
    "id": "3f2a", "good": "v1.2", "CONFIG": "configs/train.yaml", "RUNNER_TEMP": "/tmp",
}  # fmt: skip
"""What the variables in the examples' commands stand for."""
NAMES = group.list_commands(click.Context(group))
ENVIRON = {
    "GITHUB_TOKEN": "x", "SLACK_URL": "https://hooks.example.org/x", "MAIL_URL": "https://hooks.example.org/y",
}  # fmt: skip


def tool(name: str) -> str:
    """Return the path of a linter, beside this interpreter or on the path; skip the test without one."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def lint(*words: object, stdin: str | None = None) -> None:
    done = subprocess.run(list(map(str, words)), input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


# ---- linters and schemas ------------------------------------------------------------------------------------------


def test_workflows_fit_the_schema_of_github() -> None:
    lint(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)


def test_workflows_have_no_weakness_that_zizmor_knows() -> None:
    lint(tool("zizmor"), "--offline", "--no-progress", "--quiet", *WORKFLOWS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_pass_shellcheck(script: Path) -> None:
    lint(tool("shellcheck"), script)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_in_workflows_pass_shellcheck(workflow: Path) -> None:
    shellcheck = tool("shellcheck")
    for step in steps_of(workflow):
        if "run" in step:
            assert "${{" not in step["run"]  # values come by the environment, never as a part of a script
            lint(shellcheck, "--shell=bash", "-", stdin=step["run"])


def test_systemd_units_are_verified() -> None:
    lint(tool("systemd-analyze"), "verify", *(CI / "systemd").iterdir())


def test_crontab_has_a_time_and_a_script_that_is_there() -> None:
    lines = [line for line in (CI / "cron" / "bisect-train.crontab").read_text().splitlines() if line and line[0] != "#"]
    (job,) = [line for line in lines if not re.match(r"[A-Z]+=", line)]
    assert re.fullmatch(r"(?:[\d*/,-]+ ){5}/opt/bisect-train/nightly\.sh /\S+", job)
    assert os.access(CI / "cron" / "nightly.sh", os.X_OK)


def test_ray_cluster_file_fits_the_schema_of_ray() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load((CLUSTER / "ray-cluster.yaml").read_text())
    validate_config(prepare_config(config))
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config({**config, "head_nodes": 1}))


def test_rayjob_fits_the_definition_of_kuberay() -> None:
    schema = json.loads(gzip.decompress((ROOT / "tests" / "data" / "kuberay_rayjob.schema.json.gz").read_bytes()))
    job = yaml.safe_load((CLUSTER / "rayjob.yaml").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(job)
    container = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    container["volumeMount"] = container.pop("volumeMounts")
    with pytest.raises(jsonschema.ValidationError, match="volumeMount"):
        validator.validate(job)


# ---- commands -----------------------------------------------------------------------------------------------------


def commands_of(page: Path) -> Iterator[list[str]]:
    """Yield the words behind `bisect-train` of each command in a file, its variables filled in."""
    text = page.read_text().replace("\\\n", " ")
    for found in re.finditer(rf"(?m)(?:^|[\s'`(=])bisect-train ((?:{'|'.join(NAMES)})\b[^`\n]*)", text):
        line = re.split(r" (?:\|\||&&|[|&>]|# )|'$", found[1].replace("  # ", " # "))[0]
        line = re.sub(r"\$\{?(\w+)\}?", lambda name: VALUES.get(name[1], "x"), line)
        yield shlex.split(line.rstrip("'"))


COMMANDS = [(page, words) for page in PAGES if page.is_file() for words in commands_of(page)]


@pytest.mark.parametrize(("page", "words"), COMMANDS, ids=lambda item: item.name if isinstance(item, Path) else item[0])
def test_commands_of_the_examples_are_ours(page: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    command: click.Command = group
    context: Any = click.Context(group, info_name="bisect-train")
    while isinstance(command, click.Group) and words and (inner := command.get_command(context, words[0])) is not None:
        command, words = inner, words[1:]
        if isinstance(command, click.Group) and (not words or words[0].startswith("-")):
            words = ["run", *words]  # `nightly` alone is `nightly run`
    assert not isinstance(command, click.Group), words
    if words or page.suffix != ".md":  # in a sentence a command may stand alone
        command.make_context(command.name, list(words))


def test_every_kind_of_example_has_commands() -> None:
    named = {page.relative_to(ROOT).as_posix() for page, _ in COMMANDS}
    wanted = ["ci/github-actions/nightly.yml", "ci/github-actions/check-config.yml", "ci/cron/nightly.sh"]
    wanted += ["ci/systemd/bisect-train-nightly.service"]
    wanted += ["cluster/ray-cluster.yaml", "cluster/rayjob.yaml", "cluster/bisect.slurm"]
    assert {f"examples/{name}" for name in wanted} <= named


# ---- what the scripts do ------------------------------------------------------------------------------------------


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder for programs that note how they were called, in `calls`, and do what a test says."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def fake(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f'#!/usr/bin/env bash\necho "{name} $*" >> "{folder}/calls"\n{script}\n')
    path.chmod(0o755)


def calls(folder: Path) -> str:
    place = folder / "calls"
    return place.read_text() if place.exists() else ""


def shell(script: Path | str, *words: str, fakes: Path, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(script), *words] if isinstance(script, Path) else ["bash", "-e", "-c", script]
    kept = {"PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder), **environ}
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
@pytest.mark.parametrize(("status", "ends"), [("0", 0), ("1", 1), ("2", 1), ("3", 0), ("5", 1), ("130", 1), ("", 1)])
def test_workflow_ends_as_the_exit_status_says(workflow: Path, status: str, ends: int, fakes: Path, tmp_path: Path) -> None:
    done = shell(steps_of(workflow)[-1]["run"], fakes=fakes, folder=tmp_path, STATUS=status)
    assert done.returncode == ends
    assert ("::error::" in done.stdout) == (ends == 1) and ("::warning::" in done.stdout) == (status == "3")


def test_workflow_writes_the_reports_of_new_findings_into_the_summary(fakes: Path, tmp_path: Path) -> None:
    tool("jq")
    (night, write, _) = [step["run"] for step in steps_of(CI / "github-actions" / "nightly.yml") if "run" in step]
    findings = [{"is_new": is_new, "bisection": name} for is_new, name in ((True, "aa11"), (False, "bb22"), (True, ""))]
    said = json.dumps({"findings": findings})
    report = '[ $1 = report ] && echo "## report $2" && exit'
    fake(fakes, "bisect-train", f"{report}\necho WORSE; echo '{said}' > night.json; exit 5")
    places = {"GITHUB_OUTPUT": str(tmp_path / "output"), "GITHUB_STEP_SUMMARY": str(tmp_path / "summary")}
    assert shell(night, fakes=fakes, folder=tmp_path, TELL_ISSUE="github-issue:a/b", **places).returncode == 0
    assert shell(write, fakes=fakes, folder=tmp_path, **places).returncode == 0
    assert (tmp_path / "output").read_text() == "status=5\n"
    assert (tmp_path / "summary").read_text() == "```text\nWORSE\n```\n## report aa11\n"


@pytest.mark.parametrize(("status", "ends"), [(0, 0), (1, 1), (2, 2), (3, 0), (5, 0), (130, 130)])
def test_cron_script_fails_only_where_the_night_did_not_work(status: int, ends: int, fakes: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.env"
    secrets.write_text("SLACK_URL=https://hooks.example.org/x\n")
    fake(fakes, "bisect-train", f'echo "$SLACK_URL" > seen; exit {status}')
    done = shell(SCRIPTS[0], str(tmp_path), fakes=fakes, folder=tmp_path, BISECT_TRAIN_SECRETS=str(secrets))
    assert (done.returncode, done.stdout) == (ends, "")
    assert (tmp_path / "seen").read_text().strip() == "https://hooks.example.org/x"


@pytest.mark.parametrize(("restarts", "does"), [("0", "bisect-train run --good v1.2"), ("2", "bisect-train resume")])
def test_slurm_script_starts_ray_everywhere_and_goes_on_after_a_restart(
    restarts: str, does: str, fakes: Path, tmp_path: Path
) -> None:
    done = _slurm(fakes, tmp_path, "exit 3", restarts=restarts)
    said = calls(fakes)
    assert done.returncode == 3
    assert does in said and "scontrol requeue" not in said
    assert "--nodelist=n1 --overlap ray start --head" in said
    assert "--exclude=n1 --overlap ray start --address=10.0.0.1:6379" in said
    assert said.rstrip().endswith("ray stop")


def test_slurm_script_that_is_told_to_leave_goes_back_into_the_queue(fakes: Path, tmp_path: Path) -> None:
    train = "sleep 30 & trap 'echo stored > stored; kill $!; exit 130' TERM; kill -TERM $PPID; wait"
    done = _slurm(fakes, tmp_path, train)
    assert done.returncode == 0
    assert "scontrol requeue 77" in calls(fakes)
    assert (tmp_path / "stored").exists()


def _slurm(fakes: Path, folder: Path, train: str, *, restarts: str = "0") -> subprocess.CompletedProcess[str]:
    fake(fakes, "scontrol", 'if [ "$1" = show ]; then printf "n1\\nn2\\n"; fi')
    fake(fakes, "srun", 'case "$*" in *hostname*) echo "10.0.0.1 fe80::1" ;; esac')
    fake(fakes, "ray", "")
    fake(fakes, "bisect-train", train)
    slurm = {"SLURM_JOB_ID": "77", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_CPUS_PER_TASK": "16"}
    slurm |= {"SLURM_GPUS_ON_NODE": "4", "SLURM_RESTART_COUNT": restarts}
    return shell(SCRIPTS[1], str(folder), "v1.2", fakes=fakes, folder=folder, **slurm)
