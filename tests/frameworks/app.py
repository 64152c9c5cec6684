"""What an app of a framework is: a small program of ours, a history with one bad commit, and what is asked about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bisect_train.demo.history.steps import Append, Replace, Role, Step

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
TEXTS = (".py", ".yaml", ".json", ".md")


@dataclass(frozen=True)
class Asked:
    """A question about an app's repository.

    Attributes:
        label: for the table.
        options: of `bisect-train run`, beside --good, --bad, --repo and --recipe.
        keys: ids of the config keys that must be named; () asks for the bad commit between the first and the last one.
    """

    label: str
    options: tuple[str, ...]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class App:
    """An app.

    Attributes:
        name: of the preset that `init` must recognise, and of the folder below `examples/frameworks`.
        packages: distributions whose versions are told, the framework's first.
        history: commits after the files of the folder; one has the role CULPRIT.
        asked: questions.
        losses: metrics of the recipe, in YAML by name, that read the training loss where the framework writes it.
        ranks: of each probe.
        files: more files of the first commit.
        arguments: of the command, so that the framework writes these files.
        copied: package whose own files are the program: they are taken from the interpreter's site-packages, "" for none.
        first: edits of what was copied, for the first commit.
        tolerance: how far a loss of the recorder may be from a written one, beyond its digits; as a share.
    """

    name: str
    packages: tuple[str, ...]
    history: tuple[Step, ...]
    asked: tuple[Asked, ...]
    losses: Mapping[str, str]
    ranks: int = 1
    files: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    copied: str = ""
    first: tuple[Replace, ...] = ()
    tolerance: float = 0.0

    def base(self, copied: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the first commit's files by path; `copied` are those of a package."""
        folder = EXAMPLES / self.name
        found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.suffix in TEXTS}
        texts = {name: path.read_text(encoding="utf-8") for name, path in found.items() if "__pycache__" not in name}
        tree = {"README.md": f"# A small {self.name} program\n", **(copied or {}), **texts, **self.files}
        for change in self.first if copied else ():
            change.apply(tree)
        return tree

    @property
    def culprit(self) -> Step:
        """The bad commit."""
        [found] = [step for step in self.history if step.role is Role.CULPRIT]
        return found


def edit(subject: str, file: str, old: str, new: str, *, role: Role = Role.ORDINARY) -> Step:
    """Return a commit that replaces one passage."""
    return Step(subject, (Replace(file, old, new),), role=role)


def note(subject: str, text: str) -> Step:
    """Return a commit that adds a line to the readme."""
    return Step(subject, (Append("README.md", f"\n{text}\n"),))
