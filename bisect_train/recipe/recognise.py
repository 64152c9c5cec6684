"""Tells of which preset a repository is, and writes a recipe that extends it with what was found there.

Everything is pure: the caller says which files git tracks, how to read one, and what lies beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import PurePosixPath

from bisect_train.core.changes import DataLink
from bisect_train.recipe.extending import preset_names, preset_path
from bisect_train.recipe.load import load_recipe
from bisect_train.recipe.template import inspect_tree, python_sources, quoted
from bisect_train.recipe.values import Recipe

SCRIPT = "train.py"
"""Stands in the presets for a user's own script."""
NANOCHAT_HOME = "~/.cache/nanochat"


@dataclass(frozen=True, slots=True)
class Tree:
    """A repository as `init` sees it.

    Attributes:
        files: tracked paths, `/` between parts.
        read: returns a tracked file's text, or raises.
        find: returns the untracked paths that match a glob.
        is_there: whether a path outside the repository is there; `~` stands for home.
        variables: environment variables.
    """

    files: tuple[str, ...]
    read: Callable[[str], str]
    find: Callable[[str], Sequence[str]] = field(default=lambda pattern: ())
    is_there: Callable[[str], bool] = field(default=lambda path: False)
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Recognised:
    """A preset that a repository is of.

    Attributes:
        name: of the preset.
        recipe: what it says.
        signs: by what it was told, for a person.
        script: the user's own script that it runs, "" where the preset names the framework's.
    """

    name: str
    recipe: Recipe
    signs: tuple[str, ...]
    script: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """What a repository has of what a preset leaves open.

    Attributes:
        command: training command, () for that of the preset.
        config: (key, value) of `config:`.
        links: data that git does not track.
        notes: lines for a person.
    """

    command: tuple[str, ...] = ()
    config: tuple[tuple[str, str], ...] = ()
    links: tuple[DataLink, ...] = ()
    notes: tuple[str, ...] = ()


def recognise(tree: Tree) -> tuple[Recognised, ...]:
    """Return the presets that a repository is of, the most particular first."""
    sources = python_sources(tree.files, tree.read)
    ranked = inspect_tree(tree.files, tree.read).scripts
    presets = [(name, load_recipe(preset_path(name))) for name in preset_names()]
    known = [(recipe.recognise.order, name, recipe) for name, recipe in presets if recipe.recognise]
    found = (_match(name, recipe, tree.files, sources, ranked) for _, name, recipe in sorted(known, key=lambda item: item[:2]))
    return tuple(item for item in found if item is not None)


def _match(
    name: str, recipe: Recipe, files: Sequence[str], sources: dict[str, str], ranked: Sequence[str]
) -> Recognised | None:
    signs = recipe.recognise
    assert signs is not None
    matched = [next((path for path in files if fnmatch(path, pattern)), "") for pattern in signs.files]
    if not all(matched) or not (matched or signs.source):
        return None
    if not signs.source:
        return Recognised(name, recipe, tuple(matched))
    having = [path for path, text in sources.items() if re.search(signs.source, text, re.MULTILINE)]
    if not having:
        return None
    script = next((path for path in ranked if path in having), having[0])
    return Recognised(name, recipe, (*matched, script), script)


def find_rest(found: Recognised, tree: Tree) -> Found:
    """Return what a repository has of what its preset leaves open."""
    if found.name == "nanogpt":
        return _find_nanogpt(found, tree)
    if found.name == "nanochat":
        return _find_nanochat(tree)
    command = tuple(found.script if part == SCRIPT else part for part in found.recipe.command) if found.script else ()
    return Found(
        command=command if command != found.recipe.command else (),
        config=_config_of(found, tree),
        links=tuple(DataLink(path, path) for path in _untracked(found, tree)),
    )


def _untracked(found: Recognised, tree: Tree) -> list[str]:
    patterns = found.recipe.recognise.link if found.recipe.recognise else ()
    return [path for pattern in patterns for path in sorted(tree.find(pattern))]


def _config_of(found: Recognised, tree: Tree) -> tuple[tuple[str, str], ...]:
    if found.name == "hydra":
        named = re.search(r"config_path\s*=\s*[\"']([^\"']+)[\"']", _text(tree, found.script))
        folder = named.group(1) if named else next((name for name in ("conf", "configs", "config") if _has(tree, name)), "")
        below = PurePosixPath(found.script).parent / folder
        return (("hydra", str(below)),) if folder and ".." not in below.parts else ()
    if found.name == "deepspeed":
        marks = r"\"(train_batch_size|train_micro_batch_size_per_gpu|zero_optimization)\"\s*:"
        files = [path for path in tree.files if path.endswith(".json") and re.search(marks, _text(tree, path))]
        return (("file", min(files, key=lambda path: (path.count("/"), path))),) if files else ()
    return ()


def _has(tree: Tree, folder: str) -> bool:
    return any(path.startswith(f"{folder}/") for path in tree.files)


def _text(tree: Tree, path: str) -> str:
    return next(iter(python_sources((path,), tree.read, every=True).values()), "")


def _find_nanogpt(found: Recognised, tree: Tree) -> Found:
    """Find prepared data, and the config file that trains on them."""
    links = _untracked(found, tree)
    datasets = [PurePosixPath(path).parent.name for path in links if path.endswith("/train.bin")]
    by_dataset: dict[str, str] = {}
    for path in sorted(path for path in tree.files if fnmatch(path, "config/*.py")):
        named = re.search(r"^dataset\s*=\s*[\"']([^\"']+)[\"']", _text(tree, path), re.MULTILINE)
        trains = not re.search(r"^(eval_only\s*=\s*True|init_from\s*=\s*[\"'](?!scratch))", _text(tree, path), re.MULTILINE)
        if named and trains:
            by_dataset.setdefault(named.group(1), path)
    if not datasets:
        note = "no prepared data (data/*/train.bin): run one of data/*/prepare.py first, then `bisect-train init --force`"
        return Found(notes=(note,))
    preset = found.recipe.config.file
    own = next((item for item in datasets if by_dataset.get(item) == preset), None) or next(
        (item for item in datasets if item in by_dataset), datasets[0]
    )
    config = (("file", by_dataset[own]),) if own in by_dataset else ()
    kept = tuple(DataLink(path, path) for path in links if PurePosixPath(path).parent.name == own)
    return Found(config=config, links=kept, notes=() if config else (f"no config file trains on data/{own}",))


def _find_nanochat(tree: Tree) -> Found:
    """Find the folder in which nanochat keeps its tokenizer and its shards."""
    base = dict(tree.variables).get("NANOCHAT_BASE_DIR") or NANOCHAT_HOME
    names = [name for name in ("tokenizer", "base_data", "base_data_climbmix") if tree.is_there(f"{base}/{name}")]
    if "tokenizer" not in names or len(names) < 2:
        return Found(notes=(f"no tokenizer and shards in {base}: train a tokenizer first (scripts.tok_train)",))
    return Found(links=tuple(DataLink(f"{base}/{name}", f".nanochat/{name}") for name in names))


def preset_template(found: Recognised, rest: Found, *, others: Sequence[Recognised] = ()) -> str:
    """Return a commented recipe that extends a preset; it loads as it stands."""
    lines = [
        f"# How bisect-train runs one probe of this repository: it looks like {found.name} ({', '.join(found.signs)}).",
        *([f"# It has signs of {', '.join(item.name for item in others)}, too."] if others else []),
        f"# What is not said here comes from the preset: `bisect-train recipes show {found.name}`.",
        f"extends: {found.name}",
        "",
        *_command_lines(found, rest),
        *_config_lines(rest),
        *_data_lines(rest),
        *[f"# NOTE: {note}" for note in rest.notes],
        *_TAIL,
        *[f"# It cannot: {text}" for text in found.recipe.cannot],
    ]
    return "\n".join(lines) + "\n"


def _command_lines(found: Recognised, rest: Found) -> list[str]:
    if not rest.command:
        return ["# The command is the preset's; another one as a list: command: [python, ...]", ""]
    return ["# The training command as a list; no shell sees it.", f"command: [{', '.join(map(quoted, rest.command))}]", ""]


def _config_lines(rest: Found) -> list[str]:
    if not rest.config:
        return []
    return [
        "# The config that travels with each commit.",
        "config:",
        *[f"  {key}: {quoted(value)}" for key, value in rest.config],
        "",
    ]


def _data_lines(rest: Found) -> list[str]:
    if not rest.links:
        return ["# data: {link: [data/corpus.bin]}   # what git does not track and each checkout needs", ""]
    lines = ["# Data that git does not track, linked into each checkout.", "data:", "  link:"]
    for link in rest.links:
        is_same = link.source == link.target
        lines.append(
            f"    - {quoted(link.source)}" if is_same else f"    - {{from: {quoted(link.source)}, to: {quoted(link.target)}}}"
        )
    return [*lines, ""]


_TAIL = (
    "# metric: loss          # what decides; metrics of the preset can be named, too",
    "# shrink: {steps: [10, 50, 200]}",
    "# stubs: [wandb]        # modules that may be missing: an inert stand-in takes their place",
    "# shims: [cuda-as-cpu]  # run what asks for CUDA and NCCL on the CPU with gloo; it changes what is tested",
    "# when:                 # what holds for some commits only; the first block that says a thing counts",
    "#   - {file: train.py, lacks: '--new-flag', command: [python, train.py]}",
)
