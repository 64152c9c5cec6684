"""Case 9: first which package, then which release, then which of its commits.

Between the two lists of packages five differ, and the project has a dozen commits besides. The loss of the bad end is flat, and
lower: nearly all labels are ignored. The report: huggingface/peft#2043.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bisect_train.demo.history.steps import Append, Replace, Role, Step, Tree
from tests.scenarios.library.ordinary import Write, weave
from tests.scenarios.library.program import BATCHES_PY, CORPUS_PY, SETTINGS_PY, TRAIN_PY
from tests.scenarios.library.repository import build_repository
from tests.scenarios.library.scenario import Scenario, Truth
from tests.support.git_repos import git
from tests.support.wheels import make_wheel

USES_PACKAGES: dict[str, str] = {
    "objective.py": '''\
"""What the model is trained for."""

import minitrainer


def micro_loss(logits, targets, num_targets):
    """The part of one micro-batch in the mean over all targets of the step."""
    return minitrainer.token_loss(logits, targets) * len(targets) / num_targets
''',
    "corpus.py": CORPUS_PY.replace("import torch\n", "import tinytok\nimport torch\n", 1)
    .replace("        place = {symbol: code for code, symbol in enumerate(ALPHABET)}\n", "")
    .replace("[place.get(symbol, 0) for symbol in text]", "tinytok.encode(text, ALPHABET)"),
    "batches.py": BATCHES_PY.replace("import torch\n", "import padkit\nimport torch\n", 1).replace(
        "places[:, None] + self.offsets", "padkit.windows(places, self.offsets)"
    ),
    "settings.py": SETTINGS_PY.replace("import yaml\n", "import yaml\n\nimport confette\n").replace(
        "yaml.safe_load(file)", "confette.fill(yaml.safe_load(file))"
    ),
    "train.py": TRAIN_PY.replace("import torch\n", "import minilog\nimport torch\n", 1).replace(
        'print(f"step {step} loss {loss:.4f}")', "minilog.report(step, loss)"
    ),
}

TRAINER: dict[str, str] = {
    "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
    '[project]\nname = "minitrainer"\nversion = "1.0"\n\n[tool.setuptools]\npackages = ["minitrainer"]\n',
    "README.md": "# minitrainer\n\nLosses for small trainings.\n",
    "CHANGELOG.md": "# Changes\n",
    "minitrainer/__init__.py": "from minitrainer.losses import token_loss\n\n__all__ = ['token_loss']\n",
    "minitrainer/labels.py": '"""What is trained for."""\n\nIGNORE = -100\nPAD = 0\n\n\n'
    "def make_labels(targets):\n    labels = targets.clone()\n    return labels\n",
    "minitrainer/losses.py": "import torch.nn.functional as F\n\nfrom minitrainer.labels import IGNORE, make_labels\n\n\n"
    "def token_loss(logits, targets):\n    labels = make_labels(targets)\n"
    "    return F.cross_entropy(logits, labels, ignore_index=IGNORE)\n",
}
RELEASES = ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6")
COMMITS_PER_RELEASE = 5

MASK_PADDING = Step(
    "labels: padding is not trained for",
    (
        Replace(
            "minitrainer/labels.py",
            "    labels = targets.clone()\n    return labels\n",
            "    labels = targets.clone()\n    labels[labels != PAD] = IGNORE\n    return labels\n",
        ),
    ),
    role=Role.CULPRIT,
)
SUM_FIRST = Step(
    "losses: sum first, then divide",
    (
        Replace(
            "minitrainer/losses.py",
            "    return F.cross_entropy(logits, labels, ignore_index=IGNORE)\n",
            '    summed = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")\n'
            "    return summed / (labels != IGNORE).sum()\n",
        ),
    ),
    role=Role.DECOY,
)
SPECIAL = {8: SUM_FIRST, 18: MASK_PADDING}


def trainer_history() -> tuple[Step, ...]:
    """Return the 30 commits of minitrainer after its first; each fifth is a release."""
    return tuple(
        SPECIAL.get(place) or _trainer_step(place) for place in range(1, COMMITS_PER_RELEASE * (len(RELEASES) - 1) + 1)
    )


def _trainer_step(place: int) -> Step:
    number, rest = divmod(place, COMMITS_PER_RELEASE)
    if rest == 0:
        old, new = RELEASES[number - 1], RELEASES[number]
        return Step(
            f"release {new}",
            (
                Replace("pyproject.toml", f'version = "{old}"', f'version = "{new}"'),
                Append("CHANGELOG.md", f"\n## {new}\n\nSmall things.\n"),
            ),
        )
    if place % 2:
        return Step(f"readme: remark {place}", (Append("README.md", f"\nRemark {place}: a loss is a mean over tokens.\n"),))
    text = f'"""Helpers, part {place}."""\n\n\ndef scale_{place}(value):\n    return value * {place}\n'
    return Step(f"helpers, part {place}", (Write(f"minitrainer/helpers_{place}.py", text),))


OTHERS: Mapping[tuple[str, str], str] = {
    ("tinytok", "0.9"): "def encode(text, alphabet):\n    place = {symbol: code for code, symbol in enumerate(alphabet)}\n"
    "    return [place.get(symbol, 0) for symbol in text]\n",
    ("tinytok", "1.0"): "def encode(text, alphabet):\n    known = dict(zip(alphabet, range(len(alphabet))))\n"
    "    return list(map(lambda symbol: known.get(symbol, 0), text))\n",
    ("padkit", "1.7"): "def windows(places, offsets):\n    return places[:, None] + offsets\n",
    ("padkit", "2.0"): "def windows(places, offsets):\n    return places.unsqueeze(1) + offsets.unsqueeze(0)\n",
    ("minilog", "2.0"): 'def report(step, loss):\n    print(f"step {step} loss {loss:.4f}")\n',
    ("minilog", "2.3"): 'def report(step, loss):\n    print(f"step {step} loss {loss:.4f}", flush=True)\n',
    ("confette", "0.3"): "def fill(settings):\n    return settings\n",
    ("confette", "0.4"): "def fill(settings):\n    return dict(settings)\n",
}
REQUIRES = {("tinytok", "0.9"): ("padkit<2",), ("tinytok", "1.0"): ("padkit>=2",)}
"""One of the two cannot be upgraded without the other."""


def prepare(files: Path) -> None:
    """Write the wheels of all releases into `wheels`, and minitrainer's repository with its tags."""
    wheels = files / "wheels"
    for (name, version), text in OTHERS.items():
        make_wheel(wheels, name, version, {f"{name}/__init__.py": text}, REQUIRES.get((name, version), ()))
    steps = trainer_history()
    _, main = build_repository(files / "minitrainer", TRAINER, steps, first="losses for small trainings")
    tree: Tree = dict(TRAINER)
    for place, commit in enumerate(main):
        if place:
            steps[place - 1].apply(tree)
        number, rest = divmod(place, COMMITS_PER_RELEASE)
        if rest == 0:
            git(files / "minitrainer", "tag", f"v{RELEASES[number]}", commit)
            make_wheel(
                wheels,
                "minitrainer",
                RELEASES[number],
                {name: text for name, text in tree.items() if name.startswith("minitrainer/")},
            )


GOOD_LIST = "confette==0.3\nminilog==2.0\nminitrainer==1.1\npadkit==1.7\npyyaml\ntinytok==0.9\n"
BAD_LIST = "confette==0.4\nminilog==2.3\nminitrainer==1.6\npadkit==2.0\npyyaml\ntinytok==1.0\n"

PACKAGE_THEN_COMMIT = Scenario(
    "case09_package_then_commit",
    weave({}, num=12),
    Truth(
        "isolated",
        0,
        (("minitrainer",),),
        levels=(("package", "minitrainer 1.4"), ("commit", MASK_PADDING.subject)),
    ),
    base=USES_PACKAGES,
    options=(
        *("--good-env", "{files}/good.txt", "--bad-env", "{files}/bad.txt"),
        *("--find-links", "{files}/wheels", "--index-url", "none"),
        *("--package-repo", "minitrainer={files}/minitrainer", "--any-change"),
    ),
    files={"good.txt": GOOD_LIST, "bad.txt": BAD_LIST},
    prepare=prepare,
)
