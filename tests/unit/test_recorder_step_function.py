"""The recipe's key `step_function`, and how the recorder finds what it names."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bisect_train.core.errors import InputError
from bisect_train.core.fingerprint import EndingKind
from bisect_train.core.probe import RunSettings
from bisect_train.recipe.load import load_recipe
from bisect_train_workers.ending import Evidence, decide_ending
from bisect_train_workers.process_record import ProcessRecord
from bisect_train_workers.program import Outcome

sys.path.append(str(Path(__file__).parents[2] / "workers" / "bisect_train_workers" / "recorder"))

from _bisect_train_recorder.step_function import StepFunction


@pytest.mark.parametrize("name", ["my.optim:Muon.step", "train:step", "__main__:Muon.step"])
def test_recipe_with_a_step_function_keeps_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"command: [python, train.py]\nstep_function: {name}\n")
    assert load_recipe(path).step_function == name


@pytest.mark.parametrize(
    "name", ["Muon.step", "my.optim:", ":step", "my/optim.py:step", "my.optim:Muon.step()", "__main__:step"]
)
def test_recipe_with_a_wrong_step_function_is_refused_and_says_how(tmp_path: Path, name: str) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(f"command: [python, train.py]\nstep_function: '{name}'\n")
    with pytest.raises(InputError) as caught:
        load_recipe(path)
    assert "step_function" in caught.value.message
    assert "Class.method" in f"{caught.value.message} {caught.value.hint}"


def test_step_function_changes_what_a_stored_result_counts_for() -> None:
    plain, named = RunSettings("python"), RunSettings("python", step_function="my.optim:Muon.step")
    assert plain.measure_digest != named.measure_digest


class Kinds:
    """Kinds of functions that may be named."""

    def method(self, value: int) -> int:
        return value + 1

    @staticmethod
    def static(value: int) -> int:
        return value + 2

    @classmethod
    def of_class(cls, value: int) -> int:
        return value + 3

    @staticmethod
    def failing(value: int) -> int:
        raise ValueError(value)


def watched(name: str, owner: Any) -> tuple[list[Any], list[Any]]:
    """Watch a name in a module; return the events and the calls that will be told."""
    events: list[Any] = []
    session = SimpleNamespace(
        settings=SimpleNamespace(step_function=f"kinds:{name}"), event=lambda _, **data: events.append(data)
    )
    callbacks: list[Any] = []
    step = StepFunction(session)
    calls: list[Any] = []
    step.tell(lambda: calls.append("begin"), calls.append)
    step.install(SimpleNamespace(after=lambda module, callback: callbacks.append(callback)))
    module = ModuleType("kinds")
    module.Kinds = owner  # type: ignore[attr-defined]
    module.plain = lambda value: value  # type: ignore[attr-defined]
    callbacks[0](session, module)
    return events, calls


@pytest.mark.parametrize(("name", "result"), [("method", 2), ("static", 3), ("of_class", 4)])
def test_named_method_of_any_kind_is_told_and_works_as_before(name: str, result: int) -> None:
    owner = type("Kinds", (), dict(Kinds.__dict__))
    events, calls = watched(f"Kinds.{name}", owner)
    assert getattr(owner(), name)(1) == result
    assert calls == ["begin", True]
    assert events == [{"function": f"kinds:Kinds.{name}", "is_found": True}]


def test_named_function_that_raises_has_not_returned() -> None:
    owner = type("Kinds", (), dict(Kinds.__dict__))
    _, calls = watched("Kinds.failing", owner)
    with pytest.raises(ValueError):
        owner.failing(1)  # type: ignore[attr-defined]
    assert calls == ["begin", False]


@pytest.mark.parametrize("name", ["Kinds.gone", "Gone.step", "gone"])
def test_name_that_the_module_lacks_is_told(name: str) -> None:
    events, _ = watched(name, Kinds)
    assert events == [{"function": f"kinds:{name}", "is_found": False}]


def test_probe_whose_step_function_is_missing_cannot_start() -> None:
    process = ProcessRecord()
    process.take({"type": "start", "rank": 0, "world_size": 1, "pid": 1})
    data = {"function": "my.optim:Muon.step", "is_found": False}
    process.take({"type": "event", "name": "step_function", "step": 0, "data": data})
    given = {"timeout_s": 10.0, "last_sign_t": 0.0, "ended_t": 0.0, "needs_recorder": True}
    ending = decide_ending(Evidence(Outcome(status=0), [process], {0: process}, "", Path("/co"), 3, **given))  # type: ignore[arg-type]
    assert ending.kind is EndingKind.CANNOT_START
    assert "Muon.step" in ending.message
