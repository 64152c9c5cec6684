"""Looks at a repository and writes a first recipe, with a comment per key.

Both halves are pure: the caller says which files there are and how to read one. What is found is a guess and is
written as such; the recipe always loads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from bisect_train.core.errors import BisectTrainError

_USES_TORCH = re.compile(r"torch|lightning|transformers|accelerate|deepspeed|megatron|fastai|\btrl\b|litgpt", re.IGNORECASE)
_MAX_READ = 60  # python files that are looked into; the likely ones come first
_TRAINING_MARKS = (r"\.backward\(", r"\.zero_grad\(", r"\boptim\.\w+\(", r"\bTrainer\(", r"__name__ == .__main__")
_CONFIG_SUFFIXES = (".yaml", ".yml", ".toml", ".json")
_NO_CONFIG = re.compile(
    r"(^|/)(\.[^/]+|package(-lock)?\.json|tsconfig.*|pyproject\.toml|mkdocs\.ya?ml|environment\.ya?ml|tests?|docs|data|node_modules)(/|$)"
)
_DATA_NAME = re.compile(r"data|corpus|corpora|checkpoint|ckpt|weights|pretrained|tokeni[sz]er|shards", re.IGNORECASE)
_RUN_OUTPUT = re.compile(r"(^|[_-])(runs?|wandb|logs?|outputs?|out)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Findings:
    """What can be seen in a repository.

    Attributes:
        scripts: likely training scripts, the likeliest first.
        config_files: likely config files, the likeliest first.
        config_flag: how the first script takes a config file (`--config={config}`), "" if it does not seem to.
        uses_torchrun: whether the first script looks at the ranks that `torchrun` sets.
        data_folders: untracked paths that git ignores and that are there.
        uses_wandb: whether the first script imports wandb.
        has_overrides: whether the first script seems to take `key=value` arguments (hydra, omegaconf).
        has_steps: whether steps of torch's optimizers can be counted: False where scripts were found and nothing names torch.
    """

    scripts: tuple[str, ...] = ()
    config_files: tuple[str, ...] = ()
    config_flag: str = ""
    uses_torchrun: bool = False
    data_folders: tuple[str, ...] = ()
    uses_wandb: bool = False
    has_overrides: bool = False
    has_steps: bool = True


def inspect_tree(files: Sequence[str], read: Callable[[str], str], *, untracked: Sequence[str] = ()) -> Findings:
    """Return what can be seen in a repository.

    Args:
        files: paths relative to the repository, `/` between parts.
        read: returns a file's text; a file on which it raises (OSError, UnicodeDecodeError, ours) is passed over.
        untracked: paths that are there and that git does not track; without them `files` is searched for ignored ones.
    """
    sources = python_sources(files, read)
    scripts = _rank_scripts(sources)
    text = sources[scripts[0]] if scripts else ""
    ignored = _try_read(read, ".gitignore") if ".gitignore" in files else ""
    return Findings(
        scripts=scripts[:5],
        config_files=_rank_configs(files)[:5],
        config_flag=_config_flag(text),
        uses_torchrun=bool(re.search(r"LOCAL_RANK|WORLD_SIZE|init_process_group|torchrun", text)),
        data_folders=_data_folders(ignored, untracked or files),
        uses_wandb=bool(re.search(r"^[ \t]*(import|from) wandb\b", text, re.MULTILINE)),
        has_overrides=bool(re.search(r"^[ \t]*(import|from) hydra\b|OmegaConf\.from_cli", text, re.MULTILINE)),
        has_steps=not scripts or any(_USES_TORCH.search(source) for source in sources.values()),
    )


def python_sources(files: Sequence[str], read: Callable[[str], str], *, every: bool = False) -> dict[str, str]:
    """Return the text of the python files that are looked into, by path, the likely scripts first; of `every` file as given."""
    chosen = list(files) if every else _python_files(files)[:_MAX_READ]
    return {path: _try_read(read, path) for path in chosen}


def _try_read(read: Callable[[str], str], path: str) -> str:
    try:
        return read(path)
    except (OSError, UnicodeDecodeError, LookupError, BisectTrainError):
        return ""


def _python_files(files: Sequence[str]) -> list[str]:
    """Return the python files, those that look like training scripts by name first, then the less deep."""
    found = [path for path in files if path.endswith(".py") and not re.search(r"(^|/)(tests?|docs)/|(^|/)test_", path)]
    return sorted(found, key=lambda path: ("train" not in PurePosixPath(path).name, path.count("/"), path))


def _rank_scripts(sources: dict[str, str]) -> tuple[str, ...]:
    def score(path: str) -> int:
        marks = sum(bool(re.search(mark, sources[path])) for mark in _TRAINING_MARKS)
        return marks + 3 * (PurePosixPath(path).stem == "train") + 2 * ("train" in PurePosixPath(path).stem)

    return tuple(sorted((path for path in sources if score(path) >= 2), key=lambda path: (-score(path), path.count("/"), path)))


def _rank_configs(files: Sequence[str]) -> tuple[str, ...]:
    found = [path for path in files if path.endswith(_CONFIG_SUFFIXES) and not _NO_CONFIG.search(path)]

    def rank(path: str) -> tuple[bool, bool, int, str]:
        return "train" not in PurePosixPath(path).name, "config" not in path, path.count("/"), path

    return tuple(sorted(found, key=rank))


def _config_flag(text: str) -> str:
    flag = re.search(r"""["'](--(?:config|cfg|conf)(?:[-_](?:file|path))?)["']""", text)
    return f"{flag.group(1)}={{config}}" if flag else ""


def _data_folders(ignored: str, present: Sequence[str]) -> tuple[str, ...]:
    """Return what .gitignore names without wildcards, is there, and looks like data rather than like a run's output."""
    found = []
    for line in ignored.splitlines():
        name = line.strip().strip("/")
        if not name or name.startswith(("#", "!")) or re.search(r"[*?\[\\]", name) or ".." in name.split("/"):
            continue
        is_there = any(path.strip("/") == name or path.startswith(f"{name}/") for path in present)
        is_data = _DATA_NAME.search(name) and not _RUN_OUTPUT.search(PurePosixPath(name).name)
        if is_there and is_data and name not in found:
            found.append(name)
    return tuple(name for name in found if not any(name.startswith(f"{other}/") for other in found))


def recipe_template(findings: Findings) -> str:
    """Return a commented recipe for what was found; it loads as it stands."""
    parts = [
        "# How bisect-train runs one probe of this repository. Relative paths start at the repository.",
        *_command_lines(findings),
        *_config_lines(findings),
        *_shrink_lines(findings),
        *_data_lines(findings),
        *_TAIL_LINES,
    ]
    return "\n".join(parts) + "\n"


def quoted(text: str) -> str:
    """Return a text as YAML reads it back, whatever is in it; what is not printable is given by its number."""
    if text.isprintable():
        return json.dumps(text, ensure_ascii=False)
    marks = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(marks.get(char, char if char.isprintable() else f"\\U{ord(char):08x}") for char in text) + '"'


def _command_lines(findings: Findings) -> list[str]:
    script = findings.scripts[0] if findings.scripts else "train.py"
    command = ["torchrun", "--nproc-per-node={ranks}", "--master-port={port}"] if findings.uses_torchrun else ["python"]
    command.append(script)
    if findings.config_flag and findings.config_files:
        command.append(findings.config_flag)
    if findings.has_overrides:
        command.append("{overrides}")
    guess = "" if findings.scripts else "# No training script was recognised: correct this line."
    others = f"# Other scripts that could be it: {', '.join(findings.scripts[1:])}" if len(findings.scripts) > 1 else ""
    return [
        "",
        "# The training command as a list; no shell sees it.",
        "# Placeholders: {config} {overrides} {seed} {steps} {ranks} {port} {out}; on several nodes",
        "# also {nnodes} {node_rank} {local_ranks} {master_addr} (docs/cluster.md).",
        *[line for line in (guess, _one_line(others)) if line],
        f"command: [{', '.join(quoted(item) for item in command)}]",
    ]


def _one_line(text: str) -> str:
    """Return a comment's text: one line, what is not printable as its escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(text.split()))


def _config_lines(findings: Findings) -> list[str]:
    lines = ["", "# The config file that {config} stands for (it travels with each commit)."]
    if findings.config_files[1:]:
        lines.append(_one_line(f"# Other config files: {', '.join(findings.config_files[1:])}"))
    override = '"{key}={value}"'
    has_file = bool(findings.config_files and findings.config_flag)
    if has_file or findings.has_overrides:
        lines.append("config:")
    if has_file:
        lines.append(f"  file: {quoted(findings.config_files[0])}")
    if findings.has_overrides:
        return [*lines, f"  override: {override}   # how the program takes a config key as an argument"]
    if has_file:
        return [
            *lines,
            '  # override: "--{key}={value}"   # for keys as arguments; then add "{overrides}" to the command',
        ]
    return [*lines, '# config: {file: configs/train.yaml, override: "--{key}={value}"}']


def _shrink_lines(findings: Findings) -> list[str]:
    steps = "[10, 50, 200]   # `end` lets the program finish"
    if not findings.has_steps:
        steps = "[end]   # nothing here names torch, whose steps would be counted: the program finishes, a metric below decides"
    return [
        "",
        "# A probe is stopped after so many optimizer steps. The cheapest rung whose ends differ is used; --steps N takes one.",
        "shrink:",
        f"  steps: {steps}",
        *_MORE_SHRINK_LINES,
    ]


_MORE_SHRINK_LINES = (
    "  # ranks: [1, 2]",
    "  # accumulation: {key: train.accumulation, value: 1}   # on the most ranks; fewer accumulate more, the batch stays",
    "  # set: {data.max_rows: 1000}   # keys that scale the run and nothing else; needs config.override",
)


def _data_lines(findings: Findings) -> list[str]:
    lines = ["", "# Untracked data that every checkout needs, and environment variables of the program."]
    env = ['    WANDB_MODE: "disabled"   # the script imports wandb'] if findings.uses_wandb else []
    if not findings.data_folders and not env:
        return [*lines, '# data: {link: [data, {from: ../corpus, to: data/corpus}], env: {HF_HUB_OFFLINE: "1"}}']
    lines.append("data:")
    if findings.data_folders:
        lines += ["  link:", *[f"    - {quoted(name)}" for name in findings.data_folders]]
    if env:
        lines += ["  env:", *env]
    return lines


_TAIL_LINES = (
    "",
    "# Commands to run in each checkout before the program, again only when one of the inputs differs.",
    "# setup: {run: [[python, data/prepare.py]], inputs: [data/prepare.py]}",
    "",
    "# The training loss is recorded without any entry here. Other metrics are read from what the program prints or writes;",
    "# without `file:` its files are looked for in the checkout and in {out}.",
    "# metrics:",
    "#   val_loss: {from: log, pattern: 'val loss (?P<value>[-+0-9.e]+|nan|inf)', better: lower, reduce: last}",
    '#   val_loss: {from: tensorboard, tag: val/loss, file: "runs/**/events.*"}   # event files',
    '#   val_loss: {from: csv, column: val_loss, step: step, file: "{out}/**/metrics.csv"}   # `from: jsonl` takes key:',
    "#   eval_loss: {from: json}   # Hugging Face's trainer_state.json; the key is the metric's name",
    "#   val_loss: {from: wandb, key: val/loss}   # an offline run; `from: mlflow` likewise",
    "",
    "resources: {cpus: 1, gpus: 0, timeout_s: 600}",
    "# On a cluster also what places a probe: memory, the cluster's own resources, the kind of accelerator.",
    "# resources: {cpus: 8, gpus: 1, memory: 64GB, accelerator: H100, custom: {fast_disk: 1}}",
    "# More ranks than one node has: each node takes that many, with cpus, gpus and memory of one node (docs/cluster.md).",
    "# resources: {ranks_per_node: 8, cpus: 64, gpus: 8}",
    "",
    "# Modules that may be missing, such as loggers: an inert stand-in takes their place.",
    "# stubs: [wandb]",
    "# An optimizer that is none of torch's: the function whose calls are the steps (`__main__:` for a class of the script).",
    "# step_function: my_package.optim:MyOptimizer.step",
    "# What asks for CUDA and NCCL runs on the CPU with gloo; it changes what is tested.",
    "# shims: [cuda-as-cpu]",
    "# What holds for some commits only: the first block that says a thing counts.",
    "# when: [{file: train.py, lacks: '--new-flag', command: [python, train.py]}]",
    "",
    "# Environment variables whose folders become private to each probe (caches that one writes and another reads).",
    "# private: [HF_HOME]",
    "# Seeds that must never be shifted, such as the one of a fixed train/validation split.",
    "# seeds: {exempt: [2357]}",
    "# For questions about restarts: each probe is also killed after a step, and resumed by this command (`{command}` is all",
    "# of the command above); both runs are compared step by step.",
    '# restart: {save_at: 4, command: ["{command}", --resume]}',
    "# A command that judges a finished probe: status 0 good, 1 to 124 bad, 125 cannot be tested.",
    "# judge: [python, judge.py]",
)
