"""What a report says of the nodes of a cluster: names, losses, who is not believed, in every form of it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from bisect_train.coordinator.node_events import NODE_SUSPECT, NODES_DISAGREE, NODES_SEEN, Why, disagreement_of, suspects_of
from bisect_train.coordinator.running import Ended
from bisect_train.report import Cost, ReportData, build_report, report_to_json
from bisect_train.report.bynode import histories_of, warn_of_nodes
from bisect_train.report.markdown import render_markdown
from bisect_train.report.text import render_text
from bisect_train.search.node_checks import NODE_CHECK
from bisect_train.store.contract import StoredEvent
from bisect_train.store.memory import MemoryStore
from bisect_train_workers.simulated import SimulatedNode
from tests.support.simulated_bisection import Lab, drive
from tests.support.simulated_cluster import cluster, honest, shifted

EMPTY = {"seqs": [], "keys": [], "requests": []}


def events_of(*events: tuple[str, dict[str, object]]) -> list[StoredEvent]:
    return [StoredEvent(seq, kind, 0.0, data) for seq, (kind, data) in enumerate(events, start=1)]


def suspect(node: str, why: str) -> tuple[str, dict[str, object]]:
    return NODE_SUSPECT, {"node": node, "why": why, "reason": f"{node} {why}", **EMPTY}


def test_being_wrong_outweighs_losing_probes() -> None:
    assert suspects_of(events_of(suspect("a", "loses"), suspect("a", "wrong"))) == {"a": Why.WRONG}
    assert suspects_of(events_of(suspect("a", "wrong"), suspect("a", "loses"))) == {"a": Why.WRONG}


def test_disagreement_holds_until_the_bisection_is_started_again() -> None:
    split = (NODES_DISAGREE, {"reason": "a and b"})
    assert disagreement_of(events_of(("started", {}), split, ("finished", {}))) == "a and b"
    assert disagreement_of(events_of(split, ("started", {}))) == ""


def test_nothing_is_said_of_one_machine() -> None:
    events = events_of(("started", {}), ("probe_lost", {"key": "k", "reason": "x", "tries": 1, "wall_s": 1.0}))
    assert warn_of_nodes(events, ()) == ()
    assert histories_of(events, ()) == ()


def test_lost_probes_are_counted_by_node_and_notes_are_passed_on() -> None:
    seen = (NODES_SEEN, {"nodes": ["a", "b"], "notes": ["node old is left out"]})
    lost = [("probe_lost", {"key": str(idx), "node": node}) for idx, node in enumerate("aba")]
    unseen = ("given_up", {"point": "3", "part": NODE_CHECK, "reason": "lost 3 times"})
    told = warn_of_nodes(events_of(seen, *lost, suspect("a", "loses"), unseen), ())
    assert told == (
        "node a: it was avoided from then on: a loses",
        "3 probes lost and run again: 2 on a, 1 on b",
        "1 run could not be seen by a second node: the answer rests on the word of one",
        "node old is left out",
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    folder: Path = tmp_path_factory.mktemp("report")
    lab, store = Lab.build(folder, num_commits=8, culprit=4), MemoryStore()
    bad = SimulatedNode("bad", distorts=shifted(1.0))
    name, ended = drive(lab, store, executor=cluster(lab, [bad, *honest("a", "b")]))
    return report_of(store, name, ended)


def report_of(store: MemoryStore, name: str, ended: Ended) -> ReportData:
    events, results = store.events(name), store.results(name)
    plan = ended.plan_with_answer
    return build_report(
        store.load(name),
        ended.question,
        ended.space,
        plan,
        [probe for probe in results if probe.result.node != "bad" and probe.spec["part"] == 0],
        cost=Cost(ended.num_probes, 0, 1.0, 0.0),
        warnings=warn_of_nodes(events, results),
        nodes=histories_of(events, results),
    )


def test_wrong_node_is_named_in_every_form_of_the_report(report: ReportData) -> None:
    data = report_to_json(report)
    console = Console(file=io.StringIO(), width=200)
    console.print(render_text(report))
    assert isinstance(console.file, io.StringIO)
    for text in (console.file.getvalue(), render_markdown(report), " ".join(data["warnings"])):
        assert "node bad: its results are not believed" in text


def test_json_lists_the_nodes(report: ReportData) -> None:
    nodes = {node["name"]: node for node in report_to_json(report)["nodes"]}
    assert set(nodes) == {"a", "b", "bad"}
    assert nodes["bad"]["suspect"] == "wrong"
    assert "than a and b, which agree" in nodes["bad"]["reason"]
    assert (nodes["a"]["suspect"], nodes["a"]["lost"]) == (None, 0)
    assert nodes["a"]["probes"] > 0
