"""Ordinary commits: docs, renames, dead code, logging, refactors. None of them makes training better or worse.

`ORDINARY` keeps the numbers bitwise and none of its edits lies next to a line that a culprit touches, so that a culprit can be
left out. The decoys look like a change of what is trained, and are none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bisect_train.demo.history.steps import Append, Merge, Move, Replace, Role, Step, Tree


@dataclass(frozen=True, slots=True)
class Write:
    """Add a file."""

    file: str
    text: str

    def apply(self, tree: Tree) -> None:
        """Make this change in the tree."""
        if self.file in tree:
            raise ValueError(f"{self.file} exists already")
        tree[self.file] = self.text


ORDINARY: tuple[Step, ...] = (
    Step("readme: what is printed", (Append("README.md", "\nEvery few steps the loss of the step is printed.\n"),)),
    Step("ignore what Python leaves behind", (Write(".gitignore", "__pycache__/\n*.pyc\n"),)),
    Step(
        "corpus: say what a corpus is",
        (
            Replace(
                "corpus.py", "class Corpus:\n", 'class Corpus:\n    """A text as codes, and where its longer lines lie."""\n\n'
            ),
        ),
    ),
    Step(
        "train: halve_every is not used any more",
        (Replace("train.py", "def halve_every(step, period):\n    return 0.5 ** (step // period)\n\n\n", ""),),
    ),
    Step(
        "train: print how many lines there are",
        (
            Replace(
                "train.py",
                '    print(f"{len(corpus.codes)} characters, {corpus.num_symbols} symbols")\n',
                '    print(f"{len(corpus.codes)} characters, {corpus.num_symbols} symbols")\n'
                '    print(f"{len(corpus.lines)} lines for training")\n',
            ),
        ),
    ),
    Step("docs: the notes are about the design", (Move("docs/notes.md", "docs/design.md"),)),
    Step(
        "settings: say which file is missing",
        (
            Replace(
                "settings.py",
                "def load_settings(path):\n",
                "def load_settings(path):\n    if not os.path.exists(path):\n"
                '        raise SystemExit(f"no settings at {path}")\n',
            ),
            Replace("settings.py", "import yaml\n", "import os\n\nimport yaml\n"),
        ),
    ),
    Step(
        "tests: every line lies in the text",
        (
            Write(
                "tests/test_corpus.py",
                "from corpus import Corpus\n\n\ndef test_lines_lie_in_the_text():\n"
                '    text = "x" * 40 + "\\n" + "y" * 30\n'
                "    assert Corpus(text, context=4).lines == [(41, 71)]\n",
            ),
        ),
    ),
    Step(
        "batches: name the places of a batch",
        (
            Replace(
                "batches.py",
                "        places = torch.cat([torch.arange(*self.corpus.lines[idx]) for idx in chosen])\n",
                "        places = self.places_of(chosen)\n",
            ),
            Append(
                "batches.py",
                "\n    def places_of(self, chosen):\n"
                "        return torch.cat([torch.arange(*self.corpus.lines[idx]) for idx in chosen])\n",
            ),
        ),
    ),
    Step("pin what is needed", (Write("requirements.txt", "pyyaml\ntorch\n"),)),
    Step("log: a step in ten is enough", (Replace("config.yaml", "  every: 5\n", "  every: 10\n"),)),
    Step(
        "corpus: the alphabet is what can be printed",
        (Replace("corpus.py", "ALPHABET = ", "# printable ASCII; everything else becomes a blank\nALPHABET = "),),
    ),
    Step("docs: why lines are shuffled", (Append("docs/design.md", "\nAll lines are seen once before any comes again.\n"),)),
    Step(
        "train: a flag that checks the settings only",
        (
            Replace(
                "train.py",
                '    parser.add_argument("--config", default="config.yaml")\n',
                '    parser.add_argument("--config", default="config.yaml")\n'
                '    parser.add_argument("--check", action="store_true", help="read the settings and stop")\n',
            ),
            Replace(
                "train.py",
                "    train(load_settings(parse_args().config))\n",
                "    args = parse_args()\n    settings = load_settings(args.config)\n"
                "    if not args.check:\n        train(settings)\n",
            ),
        ),
    ),
    Step(
        "corpus: topics are sorted once",
        (
            Replace(
                "corpus.py",
                '    text = "\\n".join(topics[name] for name in sorted(topics))\n',
                '    names = sorted(topics)\n    text = "\\n".join(map(topics.get, names))\n',
            ),
        ),
    ),
    Step("changelog", (Write("CHANGELOG.md", "# Changes\n\n- `--check` reads the settings and stops.\n"),)),
    Step(
        "batches: what a batch is",
        (
            Replace(
                "batches.py",
                "    def draw(self):\n",
                '    def draw(self):\n        """Return the characters before each target, and the targets."""\n',
            ),
        ),
    ),
    Step(
        "tools: count the symbols of a text",
        (
            Write(
                "tools/count.py",
                "import collections\nimport sys\n\nprint(collections.Counter(sys.stdin.read()).most_common(20))\n",
            ),
        ),
    ),
    Step("readme: where the tests are", (Append("README.md", "\nThe tests need pytest: `python -m pytest tests`.\n"),)),
    Step("train: say when it is done", (Append("train.py", '        print("done")\n'),)),
    Step("license", (Write("LICENSE", "Public domain.\n"),)),
    Step("tools: move beside the tests", (Move("tools/count.py", "tests/count.py"),)),
    Step("docs: what was tried", (Append("docs/design.md", "\nWindows of equal length gave the same loss.\n"),)),
)

BIAS_FIRST = Step(
    "model: start from the bias",
    (
        Replace(
            "model.py",
            "        return scores.sum(dim=1) + self.bias\n",
            "        return torch.cat([self.bias.expand(len(inputs), 1, -1), scores], dim=1).sum(dim=1)\n",
        ),
    ),
    role=Role.DECOY,
)
"""A decoy: the same sum in another order."""

SAME_INIT = Step(
    "model: initialise the table around zero",
    (
        Replace(
            "model.py",
            '        nn.init.normal_(self.table.weight, std=settings["init"])\n',
            '        nn.init.normal_(self.table.weight, mean=0.0, std=settings["init"])\n',
        ),
    ),
    role=Role.DECOY,
)
"""A decoy that looks like a change of the model and keeps the bits."""


def weave(special: Mapping[int, Step | Merge], *, num: int, without: Collection[str] = ()) -> tuple[Step | Merge, ...]:
    """Return a history of `num` commits: `special` at their places (1 is the first after the base), ordinary ones elsewhere.

    Ordinary ones whose subject is in `without` do not occur.
    """
    ordinary = iter([step for step in ORDINARY if step.subject not in without])
    return tuple(special[place] if place in special else next(ordinary) for place in range(1, num + 1))
