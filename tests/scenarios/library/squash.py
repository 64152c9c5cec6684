"""A squash commit of 60 hunks over six files and 1,500 lines, one or two of which do harm.

The files hold functions that the program calls for its overview at the start. Nearly all hunks rewrite the body of one of them
with other names. In the first scenario one body returns a tenth of what it did; in the second one hunk brings a function and
another one calls it; in the third one hunk changes a constant that nothing used, and another one begins to use it.
"""

from __future__ import annotations

from dataclasses import dataclass

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.ordinary import BIAS_FIRST, SAME_INIT, weave
from tests.scenarios.library.program import TRAIN_PY
from tests.scenarios.library.scenario import Scenario, Truth

TOPICS = ("tables", "lengths", "rates", "shares", "spans", "words")
NUM_FUNCTIONS = 10  # of each file
RATE_FUNCTION = 6  # of `rates`: what the learning rate is multiplied by
FIRST_LINE = 6  # of the first body
NUM_BEFORE, NUM_AFTER = 12, 13  # lines of a body
BETWEEN = 4  # lines from the end of a body to the next one

DAMPED = "def damped(value, times):\n    return value / times\n"


def _body(number: int, total: str, item: str, *, is_after: bool, last: str = "") -> str:
    """Return a body whose every line has one of the names: before and after the commit no line is the same."""
    lines = [
        f"{total} = 0.0",
        f"for {item} in values:",
        f"    {item} = min({item}, 120.0)",
        f"    {total} += {item} / {number + 3}",
        f"    if {item} > 80.0:",
        f"        {total} -= ({item} - 80.0) / {number + 5}",
        f"{total} = max({total}, 1.0)",
        f"{item} = sum(1.0 for {item} in values)",
        f"{total} = {total} / {total} * {item}",
        f"{total} = {total} / max({item}, 1.0)",
        f"{total} = max({total}, 1.0)",
        last or f"return {total}",
    ]
    lines[-1:-1] = [f"assert {total} >= 1.0"] if is_after else []
    return "".join(f"    {line}\n" for line in lines)


@dataclass(frozen=True)
class _Function:
    """A function of one of the files."""

    topic: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.topic}_{self.number:02d}"

    @property
    def before(self) -> str:
        return _body(self.number, "total", "value", is_after=False)

    def after(self, last: str = "") -> str:
        return _body(self.number, "running", "length", is_after=True, last=last)

    def text(self, body: str) -> str:
        return f'\n\ndef {self.name}(values):\n    """Number {self.number} of the {self.topic}."""\n{body}'

    def hunk(self, *, shift: int = 0) -> str:
        """Return the id of the hunk that rewrites it; `shift` is how many lines other hunks add above."""
        return f"helpers/{self.topic}.py:{FIRST_LINE + self.number * (NUM_AFTER + BETWEEN) + shift},{NUM_AFTER}"


FUNCTIONS = tuple(_Function(topic, number) for topic in TOPICS for number in range(NUM_FUNCTIONS))
RATE = _Function("rates", RATE_FUNCTION)
_IMPORTS = {"rates": "from helpers import tables"}


def _file(topic: str) -> str:
    head = f"{_IMPORTS.get(topic, f'# {topic}')}\n"
    return head + "".join(item.text(item.before) for item in FUNCTIONS if item.topic == topic)


_OVERVIEW_PY = (
    '"""What there is to train on, in a few numbers."""\n\n'
    f"from helpers import {', '.join(TOPICS)}\n\n\n"
    "def print_overview(values):\n"
    f"    for part in ({', '.join(TOPICS)}):\n"
    "        numbers = [make(values) for name, make in sorted(vars(part).items()) if name[-2:].isdigit()]\n"
    '        print(f"{part.__name__}: {sum(numbers):.1f}")\n'
)
_WITH_HELPERS = (
    TRAIN_PY.replace(
        "from corpus import load_corpus\n",
        "from corpus import load_corpus\nfrom helpers import rates\nfrom helpers.overview import print_overview\n",
    )
    .replace(
        '    batches = Batches(corpus, settings["data"], seed=settings["seed"])\n',
        "    lengths = [float(stop - start) for start, stop in corpus.lines[:50]]\n    print_overview(lengths)\n"
        '    batches = Batches(corpus, settings["data"], seed=settings["seed"])\n',
    )
    .replace(
        '    optimizer = make_optimizer(model, settings["optimizer"])\n',
        f'    settings["optimizer"]["lr"] *= rates.{RATE.name}(lengths)\n'
        '    optimizer = make_optimizer(model, settings["optimizer"])\n',
    )
)
_BASE = {
    "train.py": _WITH_HELPERS,
    "helpers/__init__.py": "",
    "helpers/overview.py": _OVERVIEW_PY,
    **{f"helpers/{topic}.py": _file(topic) for topic in TOPICS},
}


def _squash(bad: str, *more: Replace) -> Step:
    """Return the commit, in which the function of the rate ends with the line `bad`."""
    rewrites = [
        Replace(f"helpers/{item.topic}.py", item.text(item.before), item.text(item.after(bad if item == RATE else "")))
        for item in FUNCTIONS
    ]
    return Step("helpers: one style (squashed)", (*rewrites, *more), role=Role.CULPRIT)


def _scenario(name: str, squash: Step, pieces: tuple[str, ...], **base: str) -> Scenario:
    return Scenario(
        name,
        weave({4: SAME_INIT, 9: squash, 13: BIAS_FIRST}, num=16),
        Truth("isolated", 0, ((squash,),), kind_of_change="worse", pieces=pieces),
        base={**_BASE, **base},
    )


ONE_HUNK = _scenario("squash_one_hunk", _squash("return running / 10.0"), (RATE.hunk(),))

_BRING = Replace("helpers/tables.py", "# tables\n", f"# tables\n\n\n{DAMPED}")
TWO_HUNKS = _scenario(
    "squash_two_hunks", _squash("return tables.damped(running, 10.0)", _BRING), ("helpers/tables.py:4,4", RATE.hunk())
)

_CONSTANT = Replace("helpers/tables.py", "TIMES = 1.0\n", "TIMES = 10.0\n")
TWO_QUIET_HUNKS = _scenario(
    "squash_two_quiet_hunks",
    _squash("return running / tables.TIMES", _CONSTANT),
    ("helpers/tables.py:1,1", RATE.hunk()),
    **{"helpers/tables.py": _BASE["helpers/tables.py"].replace("# tables\n", "TIMES = 1.0\n")},
)
