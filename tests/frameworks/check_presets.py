"""Holds the presets against the frameworks' own repositories, at several ages: do the flags exist, do the expressions match?

    BISECT_TRAIN_FRAMEWORKS=FOLDER python -m tests.frameworks.check_presets

FOLDER holds clones (bare ones will do) named like the repositories. Nothing of them is kept here: the lines that the
expressions are tried on are made, when this runs, by filling in the format strings that their code prints.
"""

from __future__ import annotations

import ast
import os
import re
import string
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bisect_train.changes.choices import Choices, is_ancestor
from bisect_train.changes.plumbing import Git
from bisect_train.core.when import When
from bisect_train.recipe import Recipe, load_recipe, preset_path

FOLDER = "BISECT_TRAIN_FRAMEWORKS"


@dataclass(frozen=True)
class Framework:
    """Where a preset's facts stand in its repository.

    Attributes:
        preset: name.
        repository: owner/name.
        ages: commits, the newest first.
        flags: where flags are declared, as git pathspecs.
        style: how: `variable` (name = value), `argument` (an option of argparse, or a field of a dataclass), or `environment`
            (variables of the preset that begin with the framework's name; the script is the user's own).
        logs: by metric of the preset: where its line is printed (pathspecs), and text that this line holds.
        values: what stands in a line for an expression of the code, where a number will not do.
        before: what a progress bar puts before what the code gives it.
    """

    preset: str
    repository: str
    ages: tuple[str, ...]
    flags: tuple[str, ...]
    style: str = "argument"
    logs: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    before: str = ""


FRAMEWORKS = (
    Framework(
        "nanogpt",
        "karpathy/nanoGPT",
        ("HEAD", "ab0718a7", "cf999148", "7c828855", "d17350a3"),
        ("train.py",),
        "variable",
        {"val_loss": (("train.py",), ": train loss "), "printed_loss": (("train.py",), "iter ")},
    ),
    Framework(
        "nanochat",
        "karpathy/nanochat",
        ("HEAD", "0307997", "eb7bbc1", "91f09cc", "3a5e0bc"),
        ("scripts/base_train.py",),
        "argument",
        {
            "val_bpb": (("scripts/base_train.py",), "Validation bpb"),
            "printed_loss": (("scripts/base_train.py",), "tok/sec"),
            "tok_per_s": (("scripts/base_train.py",), "tok/sec"),
        },
        {"print_grad_norm": " grad norm: 1.2345 |", "eta_str": ""},
    ),
    Framework(
        "torchtitan",
        "pytorch/torchtitan",
        ("HEAD", "9810191bb^", "e61f2cce4^", "8eb2376de", "82afc842e", "HEAD~1700"),
        ("torchtitan", "train_configs"),
        "argument",
        {
            "printed_loss": (("torchtitan/components/metrics.py", "torchtitan/train.py", "train.py"), "loss: "),
            "printed_grad_norm": (("torchtitan/components/metrics.py",), "grad_norm: "),
        },
    ),
    Framework(
        "deepspeed",
        "deepspeedai/DeepSpeed",
        ("HEAD", "HEAD~1500", "HEAD~2500"),
        ("deepspeed/__init__.py",),
        "argument",
        {"printed_lr": (("deepspeed/runtime/engine.py",), "skipped=")},
        {"lr": "[0.001, 0.002]", "mom": "[(0.9, 0.999)]", "self.get_lr()": "[0.001]", "self.get_mom()": "[(0.9, 0.999)]"},
    ),
    Framework(
        "megatron-lm",
        "NVIDIA/Megatron-LM",
        ("HEAD", "4cd81e85d2", "da0afe007b", "8d8241a9cf"),
        ("megatron", "gpt_builders.py"),
        "argument",
        {
            "printed_loss": (("megatron/training/training.py", "megatron/training.py"), "iteration"),
            "printed_grad_norm": (("megatron/training/training.py", "megatron/training.py"), "iteration"),
            "num_nan": (("megatron/training/training.py", "megatron/training.py"), "iteration"),
        },
        {"key": "lm loss", "datetime.now().strftime('%Y-%m-%d %H:%M:%S.%f')": "2026-01-01 00:00:00.0"},
    ),
    Framework(
        "vescale",
        "volcengine/veScale",
        ("HEAD", "372adcb", "HEAD~5"),
        ("*nanogpt_4D_finetune/*.py",),
        "variable",
        {"printed_loss": (("*nanogpt_4D_finetune/finetune_4D.py",), "iter ")},
    ),
    Framework(
        "veomni",
        "ByteDance-Seed/VeOmni",
        ("HEAD", "37cf43ae", "533671cc"),
        ("veomni/arguments/*.py", "veomni/utils/arguments.py"),
        "argument",
        {
            "printed_loss": (
                ("veomni/trainer/callbacks/trace_callback.py", "tasks/train_torch.py"),
                "loss: ",
            ),
        },
        {"lr": "0.0001", "k.split('/', 1)[-1]": "total_loss"},
        before=" 10%|#         | 10/100 [00:12<01:48,  1.20s/it, ",
    ),
    Framework(
        "accelerate",
        "huggingface/accelerate",
        ("HEAD", "34fdddd7", "13ef1c83"),
        ("src/accelerate",),
        "environment",
    ),
    Framework(
        "litgpt",
        "Lightning-AI/litgpt",
        ("HEAD", "HEAD~300", "HEAD~600"),
        ("litgpt/pretrain.py", "litgpt/args.py"),
        "argument",
        {"printed_loss": (("litgpt/pretrain.py",), "loss train")},
    ),
)


@dataclass(frozen=True)
class Row:
    """What was found of one preset at one age."""

    preset: str
    age: str
    date: str
    num_flags: int
    missing: tuple[str, ...]
    unmatched: tuple[str, ...]
    samples: tuple[str, ...]

    @property
    def is_fine(self) -> bool:
        """Whether every flag is there and every expression matches."""
        return not self.missing and not self.unmatched


def clone_of(framework: Framework, folder: Path) -> Path | None:
    """Return the clone of a framework's repository, None where the folder has none."""
    owner, _, name = framework.repository.partition("/")
    for place in (f"{owner}+{name}/repo", name, f"{name}.git"):
        for found in (folder / place / ".git", folder / place):
            if (found / "HEAD").is_file() or (found / "objects").is_dir():
                return found
    return None


def check(framework: Framework, clone: Path) -> Iterator[Row]:
    """Yield what is found at each age."""
    git, recipe = Git(clone), load_recipe(preset_path(framework.preset))
    for age in framework.ages:
        commit = git.text("rev-parse", "--verify", f"{age}^{{commit}}").strip()
        yield _check_at(framework, git, recipe, age, commit)


def _check_at(framework: Framework, git: Git, recipe: Recipe, age: str, commit: str) -> Row:
    command, patterns = _chosen(recipe, git, commit)
    flags = list(_flags_of(command))
    if framework.style == "variable":
        flags += [key for key, _ in recipe.shrink.set]
    if framework.style == "environment":
        flags = [name for name, _ in recipe.data.env if name.startswith(framework.preset.upper())]
    declared = _texts(git, commit, framework.flags)
    missing = [flag for flag in flags if not _is_declared(flag, declared, framework.style)]
    if framework.style != "environment":
        missing += [f"script {script}" for script in _scripts_of(command) if not _has(git, commit, script)]
    if "{config}" in command and framework.preset != "deepspeed" and not _has(git, commit, recipe.config.file):
        missing.append(f"config {recipe.config.file}")
    unmatched, samples = [], []
    for metric, (paths, anchor) in framework.logs.items():
        lines = _lines_with(anchor, _texts(git, commit, paths), framework.values)
        lines = [framework.before + line for line in lines]
        found = [line for line in lines if any(re.search(item, line) for item in patterns[metric])]
        if lines and not found:
            unmatched.append(f"{metric}: {lines[0][:160]}")
        elif found:
            samples.append(f"{metric}: {found[0].strip()[:100]}")
        elif metric != "printed_grad_norm":  # which some ages do not print
            unmatched.append(f"{metric}: no such line is printed")
    date = git.text("log", "-1", "--format=%cs", commit)
    return Row(framework.preset, age, date, len(flags), tuple(missing), tuple(unmatched), tuple(samples))


def _chosen(recipe: Recipe, git: Git, commit: str) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Return the command and the expressions of a preset at a commit."""
    names = ("where", "since", "until", "exists", "file", "contains", "lacks", "command", "patterns")
    whens = [When(**{name: getattr(block, name) for name in names}) for block in recipe.whens]
    choice = Choices(git, whens).at(commit, lambda revision: is_ancestor(git, revision, commit))
    asked = [item.to_pattern() for item in recipe.metrics]
    patterns = {item.name: (item.pattern, *item.others) for item in asked}
    patterns |= {name: (pattern,) for name, pattern in choice.patterns}
    return choice.command or recipe.command, patterns


def _flags_of(command: Sequence[str]) -> Iterator[str]:
    """Yield the names of the program's own options, without dashes and values."""
    own = list(command)
    starts = [idx for idx, part in enumerate(own) if part.endswith(".py") or (idx and own[idx - 1] == "-m")]
    for part in own[starts[0] + 1 :]:
        if part.startswith("-"):
            yield part.lstrip("-").partition("=")[0]


def _scripts_of(command: Sequence[str]) -> Iterator[str]:
    if command[-1] == "{config}":
        return  # the user's own script
    for idx, part in enumerate(command):
        if part.endswith((".py", ".toml")):
            yield part
        elif idx and command[idx - 1] == "-m":
            yield part.replace(".", "/")


def _has(git: Git, commit: str, path: str) -> bool:
    return any(git.attempt("cat-file", "-e", f"{commit}:{name}").returncode == 0 for name in (path, f"{path}.py"))


def _is_declared(flag: str, text: str, style: str) -> bool:
    name = flag.rpartition(".")[2]
    under = re.escape(name.replace("-", "_"))
    if style == "environment":
        return f'"{flag}"' in text
    if style == "variable":
        return re.search(rf"^{under}\s*=|[\"']{under}[\"']", text, re.MULTILINE) is not None
    option = rf"[\"']--{re.escape(name)}[\"']" if "." not in flag else rf"[\"']--{re.escape(flag)}[\"']"
    forms = (option, rf"^\s+{under}\s*:\s", rf"^{under}\s*=")
    return any(re.search(form, text, re.MULTILINE) for form in forms)


def _texts(git: Git, commit: str, paths: Sequence[str]) -> str:
    """Return the text of the python and TOML files at some pathspecs."""
    listed = git.attempt("ls-tree", "-r", "-z", "--name-only", commit).stdout.decode().split("\0")
    wanted = [re.compile(re.escape(path).replace(r"\*", ".*") + "(/.*)?$") for path in paths]
    names = [name for name in listed if name.endswith((".py", ".toml")) and any(form.match(name) for form in wanted)]
    lines = "".join(f"{commit}:{name}\n" for name in names)
    done = subprocess.run(
        ["git", f"--git-dir={git.git_dir}", "cat-file", "--batch"], input=lines.encode(), capture_output=True, check=True
    )
    return done.stdout.decode(errors="replace")


# ---- the lines that the code prints ---------------------------------------------------------------------------------


def _lines_with(anchor: str, batch: str, values: Mapping[str, str]) -> list[str]:
    """Return lines with made-up numbers for the format strings that hold a text, given the output of `cat-file --batch`."""
    found = []
    for text in re.split(r"^[0-9a-f]{40} blob \d+\n", batch, flags=re.MULTILINE):
        if anchor.strip() not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        for scope in [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Module))]:
            pieces = [_fill(node, values) for node in _formats(scope)]
            found += [piece for piece in pieces if anchor in piece]
            whole = "".join(pieces)  # a line that is put together piece by piece
            if isinstance(scope, ast.FunctionDef) and anchor in whole:
                found.append(whole)
    return found


def _formats(scope: ast.AST) -> list[ast.expr]:
    """Return the f-strings and calls of `format` in a scope, in their order, without those inside others."""
    found: list[ast.expr] = []
    for node in ast.walk(scope):
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"
        is_text = is_call and isinstance(node.func.value, ast.Constant)  # type: ignore[union-attr]
        if isinstance(node, ast.JoinedStr) or is_text:
            found.append(node)  # type: ignore[arg-type]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _fill(node: ast.expr, values: Mapping[str, str]) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_fill_part(part, values) for part in node.values)
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
    names = [ast.unparse(argument) for argument in node.args]
    text, idx = "", 0
    for literal, name, spec, _ in string.Formatter().parse(node.func.value.value):
        text += literal
        if name is not None:
            text += _sample(names[idx] if idx < len(names) else name, spec or "", values)
            idx += 1
    return text


def _fill_part(part: ast.expr, values: Mapping[str, str]) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    assert isinstance(part, ast.FormattedValue)
    spec = (
        "".join(str(item.value) for item in part.format_spec.values if isinstance(item, ast.Constant))
        if (isinstance(part.format_spec, ast.JoinedStr))
        else ""
    )
    return _sample(ast.unparse(part.value), spec, values)


def _sample(expression: str, spec: str, values: Mapping[str, str]) -> str:
    """Return a made-up value of an expression as its format writes it."""
    if expression in values:
        return values[expression]
    if expression.startswith(("color.", "self.color.")):
        return ""
    kinds = {**dict.fromkeys("feEgG%", 2.345678), **dict.fromkeys("dnxob,", 7)}
    return format(kinds.get(spec[-1:], "7") if not spec[-1:].isdigit() else 7, "" if "{" in spec else spec)


def main() -> int:
    """Print the table; status 1 where something is wrong."""
    folder = Path(os.environ[FOLDER])
    is_fine = True
    for framework in FRAMEWORKS:
        clone = clone_of(framework, folder)
        if clone is None:
            print(f"{framework.preset:<12} no clone of {framework.repository}")
            continue
        for row in check(framework, clone):
            is_fine = is_fine and row.is_fine
            said = "ok" if row.is_fine else f"MISSING {', '.join(row.missing)} {' / '.join(row.unmatched)}"
            print(f"{row.preset:<12} {row.age:<14} {row.date} {row.num_flags:>3} flags, {len(row.samples)} expressions: {said}")
            for sample in row.samples if "-v" in sys.argv else ():
                print(f"    {sample}")
    return 0 if is_fine else 1


if __name__ == "__main__":
    sys.exit(main())
