"""What the folder of a recorded run says of it: commit, config, packages, uncommitted patch, command.

Weights & Biases, MLflow, Hydra, a probe that was kept (`--keep`), a report (`--out`). Nothing is guessed: what a tracker does
not keep is None, with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bisect_train.core.errors import InputError
from bisect_train.core.yaml_text import load_yaml_text
from bisect_train_workers.sources.protobuf import parts_of, text_of
from bisect_train_workers.sources.wandb_records import item_name, records_of

MAX_BYTES = 16 << 20
"""Size of a file of a run that is read, bytes."""

PARTS = ("commit", "config", "requirements", "patch", "command")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_COMMIT_KEYS = ("git_commit", "git_hash", "git_sha", "commit", "commit_hash")
_KNOWN = "known are folders of Weights & Biases, MLflow, Hydra, a kept probe (--keep) and a report (--out)"
# fields of wandb_internal.proto: of a record, a run, an environment
_CONFIG, _RUN, _ENVIRONMENT = 5, 17, 26
_RUN_CONFIG, _RUN_GIT = 4, 21
_ARGS, _PROGRAM, _CODE_PATH, _GIT, _ROOT = 5, 6, 7, 9, 11


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A recorded run.

    Attributes:
        kind: wandb, mlflow, hydra, kept or report.
        path: the folder as it was named.
        commit: 40 (or 64) hex digits.
        config: (file name, whose suffix tells the format; text).
        requirements: text of a requirements file.
        patch: file of uncommitted changes, as git writes them.
        command: the training command.
        hydra: name of the primary config, then overrides, as Hydra was given them.
        missing: (part, why it is None).
    """

    kind: str
    path: str
    commit: str | None = None
    config: tuple[str, str] | None = None
    requirements: str | None = None
    patch: Path | None = None
    command: tuple[str, ...] | None = None
    hydra: tuple[str, ...] | None = None
    missing: tuple[tuple[str, str], ...] = ()

    def why_not(self, part: str) -> str:
        """Return why a part is None, "" if it is not."""
        return dict(self.missing).get(part, "")


def read_run_folder(folder: Path, *, end: str = "good") -> RunFolder:
    """Return what a folder says of its run.

    Args:
        folder: of the run; of W&B also its `files`, of Hydra also its `.hydra`.
        end: `good` or `bad`, the end that is taken where a report has both.
    Raises:
        InputError: there is no such folder, or it is none of a run; a file in it cannot be read.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder", hint=_KNOWN)
    wandb = folder.parent if folder.name == "files" and _has_wandb(folder.parent) else folder
    readers: tuple[tuple[bool, Callable[[], RunFolder]], ...] = (
        (_has_wandb(wandb), lambda: _read_wandb(wandb, str(folder))),
        ((folder / "meta.yaml").is_file() and (folder / "params").is_dir(), lambda: _read_mlflow(folder)),
        (folder.name == ".hydra" and (folder / "config.yaml").is_file(), lambda: _read_hydra(folder, str(folder))),
        ((folder / ".hydra" / "config.yaml").is_file(), lambda: _read_hydra(folder / ".hydra", str(folder))),
        ((folder / "checkout" / ".git").exists(), lambda: _read_kept(folder)),
        ((folder / "report.json").is_file(), lambda: _read_report(folder, end)),
    )
    for is_it, read in readers:
        if is_it:
            return read()
    raise InputError(f"{folder}: this is no folder of a recorded run", hint=_KNOWN)


def _make(kind: str, path: str, why: dict[str, str], **parts: Any) -> RunFolder:
    missing = tuple((part, why[part]) for part in PARTS if parts.get(part) is None)
    return RunFolder(kind, path, **parts, missing=missing)


# ---- Weights & Biases -------------------------------------------------------------------------------------------------


def _has_wandb(folder: Path) -> bool:
    return find_record_file(folder) is not None or any(
        (folder / "files" / name).is_file() for name in ("wandb-metadata.json", "config.yaml")
    )


def find_record_file(folder: Path) -> Path | None:
    """Return the file in which W&B keeps a run's history, None without one."""
    return next(iter(sorted(folder.glob("run-*.wandb"))), None)


def _read_wandb(folder: Path, shown: str) -> RunFolder:
    """Read `files/` and, for what is not there (an offline run that was never synced), the record file."""
    files = folder / "files"
    told = _wandb_metadata(files / "wandb-metadata.json")
    recorded = _wandb_records(find_record_file(folder))
    values = _wandb_config(files / "config.yaml")
    values = recorded.config if values is None else values
    commit = (told.commit or recorded.commit) or None
    program, arguments = (told.program, told.arguments) if told.program else (recorded.program, recorded.arguments)
    why = {
        "commit": "the run was not in a git repository, or git was disabled for it",
        "config": "there is neither files/config.yaml nor a record of it",
        "requirements": "there is no files/requirements.txt",
        "patch": "there is no files/diff.patch: nothing was uncommitted, or the code was not saved",
        "command": "neither wandb-metadata.json nor the record names a program in the repository",
    }
    return _make(
        "wandb",
        shown,
        why,
        commit=commit,
        config=("config.yaml", _dump(values)) if values else None,
        requirements=_text(files / "requirements.txt"),
        patch=files / "diff.patch" if (files / "diff.patch").is_file() else None,
        command=("python", program, *arguments) if program else None,
    )


@dataclass(slots=True)
class _Told:
    """What a run says of its start."""

    commit: str = ""
    program: str = ""
    arguments: tuple[str, ...] = ()
    config: dict[str, Any] | None = None


def _wandb_metadata(path: Path) -> _Told:
    text = _text(path)
    if text is None:
        return _Told()
    try:
        data = json.loads(text)
        commit = (data.get("git") or {}).get("commit") or data.get("commit") or ""
        program = data.get("codePath") or data.get("program") or ""
        arguments = tuple(str(item) for item in data.get("args") or ())
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise InputError(f"{path}: this is no metadata of a run", hint="it is a JSON file that wandb writes") from None
    return _Told(_whole_commit(commit), _inside(str(program), str(data.get("root") or "")), arguments)


def _inside(program: str, root: str) -> str:
    """Return a program's path in its repository, "" for one that lies elsewhere, or for `<python with no main file>`."""
    if program.startswith("<"):
        return ""
    if root and program.startswith(f"{root}/"):
        return program[len(root) + 1 :]
    return "" if program.startswith("/") else program


def _wandb_config(path: Path) -> dict[str, Any] | None:
    """Return the values in `config.yaml`, where each key has `desc` and `value`."""
    text = _text(path)
    if text is None:
        return None
    data = _mapping(path, text)
    kept = {key: item for key, item in data.items() if key not in ("_wandb", "wandb_version")}
    return {key: item["value"] if isinstance(item, dict) and "value" in item else item for key, item in kept.items()}


def _wandb_records(path: Path | None) -> _Told:
    told = _Told()
    if path is None:
        return told
    config: dict[str, Any] = {}
    for record in records_of(_data(path)):
        try:
            _take_record(record, told, config)
        except ValueError:  # a record of a version that writes something else
            continue
    told.config = config or None
    return told


def _take_record(record: bytes, told: _Told, config: dict[str, Any]) -> None:
    for run in parts_of(record, _RUN):
        told.commit = next((_whole_commit(text_of(git, 2)) for git in parts_of(run, _RUN_GIT)), "") or told.commit
        for part in parts_of(run, _RUN_CONFIG):
            _take_config(part, config)
    for part in parts_of(record, _CONFIG):
        _take_config(part, config)
    for environment in parts_of(record, _ENVIRONMENT):
        told.commit = next((_whole_commit(text_of(git, 2)) for git in parts_of(environment, _GIT)), "") or told.commit
        if program := text_of(environment, _CODE_PATH) or text_of(environment, _PROGRAM):
            told.program = _inside(program, text_of(environment, _ROOT))
            told.arguments = tuple(part.decode("utf-8", "replace") for part in parts_of(environment, _ARGS))


def _take_config(part: bytes, config: dict[str, Any]) -> None:
    for item in parts_of(part, 1):
        name = item_name(item)
        if not name.startswith("_wandb"):
            config[name] = json.loads(text_of(item, 16))
    for item in parts_of(part, 2):
        config.pop(item_name(item), None)


# ---- the others -------------------------------------------------------------------------------------------------------


def _read_mlflow(folder: Path) -> RunFolder:
    params = {path.relative_to(folder / "params").as_posix(): path for path in (folder / "params").rglob("*") if path.is_file()}
    values = {name: _scalar(_text(path) or "") for name, path in sorted(params.items())}
    script = (_text(folder / "tags" / "mlflow.source.name") or "").strip()
    named = f" ({script})" if script else ""
    requirements = sorted((folder / "artifacts").rglob("requirements.txt"))
    why = {
        "commit": "the run has no tag mlflow.source.git.commit: it was not started from a file in a git repository",
        "config": "the run has no params",
        "requirements": "no model with its requirements.txt was logged",
        "patch": "MLflow keeps no uncommitted changes",
        "command": f"MLflow keeps the program's name{named}, not its arguments",
    }
    return _make(
        "mlflow",
        str(folder),
        why,
        commit=_whole_commit((_text(folder / "tags" / "mlflow.source.git.commit") or "").strip()) or None,
        config=("config.yaml", _dump(values)) if values else None,
        requirements=_text(requirements[0]) if requirements else None,
    )


def _read_hydra(folder: Path, shown: str) -> RunFolder:
    path = folder / "config.yaml"
    text = _text(path) or ""
    values = _mapping(path, text)
    overrides = _list(folder / "overrides.yaml")
    job = _hydra_job(folder / "hydra.yaml")
    name = job.get("config_name")
    logged = (values.get(key) for key in _COMMIT_KEYS)
    commit = next((item for item in logged if isinstance(item, str) and _COMMIT.fullmatch(item)), None)
    script = f" ({job['name']})" if job.get("name") else ""
    why = {
        "commit": f"Hydra keeps none, and the config has none under {', '.join(_COMMIT_KEYS)}",
        "config": "it is empty",
        "requirements": "Hydra keeps no list of packages",
        "patch": "Hydra keeps no uncommitted changes",
        "command": f"Hydra keeps the job's name{script} and its overrides, not the program",
    }
    hydra = (str(name), *overrides) if name and overrides is not None else None
    return _make("hydra", shown, why, commit=commit, config=("config.yaml", text) if values else None, hydra=hydra)


def _hydra_job(path: Path) -> dict[str, Any]:
    text = _text(path)
    data = _mapping(path, text).get("hydra") if text else None
    job = data.get("job") if isinstance(data, dict) else None
    return job if isinstance(job, dict) else {}


def _read_kept(folder: Path) -> RunFolder:
    head = (_text(folder / "checkout" / ".git" / "HEAD") or "").strip()
    why = {
        "commit": "its checkout has no commit of its own",
        "config": "it is in the checkout, with the commit",
        "requirements": "a probe keeps no list of packages",
        "patch": "a probe runs what is committed",
        "command": "it is not kept in the folder; `bisect-train show PROBE` prints it",
    }
    return _make("kept", str(folder), why, commit=_whole_commit(head) or None)


def _read_report(folder: Path, end: str) -> RunFolder:
    path = folder / "report.json"
    try:
        ends = json.loads(_text(path) or "")["ends"]
        commit = str(ends[end]["revision"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InputError(
            f"{path}: this is no report of a bisection", hint="`bisect-train report --json FILE` writes one"
        ) from None
    why = {
        "commit": f"the report names no commit of the {end} end",
        "config": "a report names the config's path only",
        "requirements": "a report has no list of packages",
        "patch": "a report is about what is committed",
        "command": "a report has it with secrets hidden; give it after --",
    }
    return _make("report", str(folder), why, commit=_whole_commit(commit) or None)


# ---- files ------------------------------------------------------------------------------------------------------------


def _whole_commit(text: object) -> str:
    return text if isinstance(text, str) and _COMMIT.fullmatch(text) else ""


def _data(path: Path) -> bytes:
    """Return a file's content. Raises InputError where it cannot be read or is too large for what it should be."""
    try:
        if path.stat().st_size > MAX_BYTES and path.suffix != ".wandb":
            raise InputError(f"{path}: this file is larger than {MAX_BYTES >> 20} MiB", hint="is it one of a recorded run?")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint=f"look at `ls -ld {path}`") from None


def _text(path: Path) -> str | None:
    """Return a text file, None where there is none. Raises InputError where it cannot be read."""
    if not path.is_file():
        return None
    try:
        return _data(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: this is no UTF-8 text (byte {error.start})", hint="is it one of a recorded run?") from None


def _mapping(path: Path, text: str) -> dict[str, Any]:
    """Return a YAML mapping, {} for an empty file. Raises InputError where it is something else."""
    try:
        data = load_yaml_text(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(f"{path}: this is no YAML: {first}", hint="is it one of a recorded run?") from None
    if data is not None and not isinstance(data, dict):
        raise InputError(f"{path}: this YAML holds no keys and values", hint="is it one of a recorded run?")
    return data or {}


def _list(path: Path) -> list[str] | None:
    text = _text(path)
    if text is None:
        return None
    try:
        data = load_yaml_text(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    items: Iterable[Any] = data if isinstance(data, list) else []
    return [str(item) for item in items]


def _scalar(text: str) -> Any:
    """Return a parameter that MLflow keeps as text as the value that it is the text of."""
    try:
        value = load_yaml_text(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    return value if value is None or isinstance(value, (str, int, float, bool, list, dict)) else text


def _dump(values: dict[str, Any]) -> str:
    return yaml.safe_dump(values, sort_keys=True, allow_unicode=True, default_flow_style=False)
