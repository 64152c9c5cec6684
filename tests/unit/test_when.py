"""What a recipe says for some commits only: which blocks hold, what they give together, what of them a variant has."""

from __future__ import annotations

import json
from itertools import product

import pytest

from bisect_train.core.changes import DataLink, Variant
from bisect_train.core.probe import MetricPattern, ProbeJob, ProbeSpec, Rung, RunSettings
from bisect_train.core.question import Question, Range
from bisect_train.core.when import Choice, When, choose

COMMIT = "a" * 40


def holds(when: When, *, commits: set[str] = frozenset(), files: dict[str, str] | None = None) -> bool:
    tree = files or {}
    return when.holds(has=lambda revision: revision in commits, is_there=lambda path: path in tree, read=tree.get)


@pytest.mark.parametrize(
    ("since", "until", "exists", "contains", "lacks"), list(product((False, True), repeat=5)), ids=lambda value: str(int(value))
)
def test_block_holds_where_all_of_its_conditions_do(
    since: bool, until: bool, exists: bool, contains: bool, lacks: bool
) -> None:
    when = When("r", since="a", until="b", exists="x", file="f", contains="^new =", lacks="old")
    commits = {name for name, is_in in (("a", since), ("b", until)) if is_in}
    files = {"f": ("\nnew = 1" if contains else "") + ("\nold = 1" if lacks else ""), **({"x": ""} if exists else {})}
    assert holds(when, commits=commits, files=files) == (since and not until and exists and contains and not lacks)


def test_block_about_a_file_does_not_hold_where_the_file_is_missing() -> None:
    assert not holds(When("r", file="f", lacks="x"))
    assert not holds(When("r", file="f", contains="x"))
    assert holds(When("r", file="f", lacks="x"), files={"f": "y"})


def test_first_block_that_says_a_thing_counts() -> None:
    first = When("r", command=("a",), env=(("X", "1"),), data=((DataLink("/1", "d"), "one"),))
    second = When("r", command=("b",), env=(("X", "2"), ("Y", "2")), patterns=(("loss", "p"),))
    third = When(
        "r", data=((DataLink("/3", "d"), "three"), (DataLink("/3", "e"), "three")), patterns=(("loss", "q"), ("acc", "r"))
    )
    assert choose([first, second, third]) == Choice(
        command=("a",),
        env=(("X", "1"), ("Y", "2")),
        data=((DataLink("/1", "d"), "one"), (DataLink("/3", "e"), "three")),
        patterns=(("acc", "r"), ("loss", "p")),
    )
    assert choose([second, first]).command == ("b",)
    assert choose([]) == Choice()


def test_question_with_blocks_survives_json() -> None:
    when = When("r, line 3", since=COMMIT, file="f", contains="x", command=("a", "{overrides}"), env=(("X", "1"),),
                data=((DataLink("/d", "d"), "digest"),), patterns=(("loss", "p"),))  # fmt: skip
    question = Question(
        "run", "/r", Range((COMMIT,), COMMIT), ("a",), RunSettings("python", stubs=("wandb",)), Rung(5), whens=(when,)
    )
    again = Question.of_json(json.loads(json.dumps(question.to_json())))
    assert again == question
    old = question.to_json()
    del old["whens"], old["settings"]["stubs"], old["settings"]["shims"]
    assert Question.of_json(old).whens == ()


def test_variant_reads_a_metric_in_its_own_way() -> None:
    variant = Variant("t", "c", ("a",), patterns=(("loss", "new ([0-9.]+)"),))
    assert variant.id != Variant("t", "c", ("a",)).id
    patterns = (MetricPattern("loss", "old ([0-9.]+)", ("older ([0-9.]+)",)), MetricPattern("acc", "acc ([0-9.]+)"))
    job = ProbeJob("id", ProbeSpec(variant, Rung(5)), RunSettings("python", patterns=patterns), "repo")
    own = job.with_own_settings().settings.patterns
    assert own == (MetricPattern("loss", "new ([0-9.]+)"), MetricPattern("acc", "acc ([0-9.]+)"))


def test_stand_ins_are_part_of_what_is_measured() -> None:
    plain = RunSettings("python")
    digests = {plain.measure_digest} | {
        RunSettings("python", **{name: value}).measure_digest
        for name, value in (("stubs", ("wandb",)), ("stubs", ("pandas",)), ("shims", ("cuda-as-cpu",)))
    }
    assert len(digests) == 4
