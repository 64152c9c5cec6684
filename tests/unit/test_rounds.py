"""Rounds: how often one probe had to wait for another."""

from __future__ import annotations

import pytest

from bisect_train.coordinator.observing import count_rounds
from bisect_train.store.contract import StoredEvent


def events_of(text: str) -> list[StoredEvent]:
    """Return starts (`a+`) and ends (`a-`) of probes, in order."""
    kinds = {"+": "probe_started", "-": "probe_finished"}
    return [StoredEvent(idx, kinds[word[1]], 0.0, {"key": word[0]}) for idx, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("text", "num"),
    [
        ("", 0),
        ("a+ a- b+ b- c+ c-", 3),
        ("a+ b+ a- b- c+ d+ c- d-", 2),
        ("a+ b+ a- c+ b- d+ c- d-", 2),  # two workers that are never idle
        ("a+ b+ b- c+ c- d+ d- a-", 3),  # a long one beside three short ones
    ],
)
def test_rounds_are_the_longest_chain_of_waiting_probes(text: str, num: int) -> None:
    assert count_rounds(events_of(text)) == num
