"""Keys of stored results computed again from what is stored beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bisect_train.cli.checking import problem_of
from bisect_train.cli.stored_results import Origin, explain_key, rung_of
from bisect_train.core.changes import Variant
from bisect_train.core.fingerprint import Ending, EndingKind, Fingerprint
from bisect_train.core.probe import RECORDER_VERSION, MachineFacts, ProbeResult, ProbeSpec, Rung, probe_key
from bisect_train.core.question import Question
from bisect_train.store.codec import pack_result
from bisect_train.store.upkeep import StoredResult
from tests.support.git_repos import question_of

OWN = "0a1b2c3d"
FACTS = MachineFacts("a CPU", "python 3.11", 1)
QUESTION = replace(question_of("a" * 40, "b" * 40), rung=Rung(20, 1))
VARIANT = Variant("t" * 40, "c" * 40, ("python", "train.py"))


def stored(key: str, *, job_id: str = "", question: Question = QUESTION, **spec: Any) -> StoredResult:
    facts = {"hardware_class": FACTS.hardware_class, "interpreter": FACTS.interpreter}
    data = {"variant": VARIANT.id, "seed_idx": 2, "repeat": 1, "rung": question.rung.name, **facts, **spec}
    packed = pack_result(ProbeResult(job_id or key, Fingerprint(Ending(EndingKind.STOPPED))))
    return StoredResult(key, OWN, data, packed, 0.0)


def key_of(question: Question = QUESTION, *, variant: Variant = VARIANT, **more: Any) -> str:
    return probe_key(ProbeSpec(variant, question.rung, 2, 1), settings=question.settings, facts=FACTS, **more)


@pytest.mark.parametrize(
    "scope", ["", OWN, f"{OWN}/0", f"{OWN}/again-3", f"{OWN}/early-{key_of()}", f"{OWN}/early-{key_of(scope=OWN)}"]
)
def test_key_is_explained_by_whom_it_is_for(scope: str) -> None:
    assert explain_key(stored(key_of(scope=scope)), QUESTION) == Origin(RECORDER_VERSION, scope)


def test_key_of_a_variant_with_packages_is_explained() -> None:
    settings = replace(QUESTION.settings, environment=replace(QUESTION.settings.environment, digest="wheels"))
    question, variant = replace(QUESTION, settings=settings), replace(VARIANT, packages=("toy==1",))
    result = stored(key_of(question, variant=variant), question=question, variant=variant.id)
    assert explain_key(result, question) == Origin(RECORDER_VERSION, "")


def test_key_of_an_older_recorder_says_which() -> None:
    assert explain_key(stored(key_of(recorder="1")), QUESTION) == Origin("1", "")


@pytest.mark.parametrize(
    "spec", [{"seed_idx": 3}, {"variant": "0" * 16}, {"hardware_class": "another"}, {"rung": "20 steps x 2 ranks"}]
)
def test_key_that_nothing_gives_is_not_explained(spec: dict[str, Any]) -> None:
    assert explain_key(stored(key_of(), **spec), QUESTION) is None


@pytest.mark.parametrize("spec", [{"seed_idx": "x"}, {"rung": "a lot"}, {"repeat": None}])
def test_spec_that_makes_no_sense_is_not_explained(spec: dict[str, Any]) -> None:
    assert explain_key(stored(key_of(), **spec), QUESTION) is None
    assert explain_key(replace(stored(key_of()), spec={}), QUESTION) is None


@pytest.mark.parametrize("rung", [Rung(7, 1), Rung(200, 4), Rung(None, 2)])
def test_rung_of_another_size_is_read_by_its_name(rung: Rung) -> None:
    assert rung_of({"rung": rung.name}, QUESTION) == rung and rung_of({}, QUESTION) == QUESTION.rung


def test_result_belongs_to_its_key_unless_it_is_known_under_another() -> None:
    assert problem_of(stored(key_of())) == ""
    other = stored(key_of(), job_id="f" * 16)
    assert problem_of(other) == f"it is the result of probe {'f' * 16}"
    assert problem_of(stored(key_of(), job_id="f" * 16, begun_as="f" * 16)) == "", (
        "it might have been stopped early and was not"
    )
    assert problem_of(replace(other, is_inherited=True)) == "", "the bisection that began it is gone"
    assert "cannot be read" in problem_of(replace(other, packed=b"torn"))
    assert problem_of(replace(other, problem="no event")) == "no event"
