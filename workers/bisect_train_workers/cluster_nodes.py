"""Which nodes of a cluster run probes: asks each living node what it is, chooses the class, and watches who comes and goes.

Each node is asked by a task that takes no resources of it, so a busy one answers, too. A node that joins later is asked when it
is first seen, and is used if it is of the class. What this keeps is about Ray's nodes only; where a probe goes is `cluster`'s.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bisect_train.core.errors import MachineError
from bisect_train.core.probe import MachineFacts, RunSettings
from bisect_train_workers.cluster import ClusterNode, NodeClass, choose_class, name_gangs, of_class, read_nodes, say_left_out
from bisect_train_workers.cluster_scaling import ask_for, can_scale
from bisect_train_workers.node_facts import NodeFacts
from bisect_train_workers.placement import Resources, count_gangs, count_slots, require_room, wanted_of
from bisect_train_workers.ray_task import find_facts_task

LOOK_S = 2.0
"""Time between two looks at who lives, seconds."""
FRESH_S = 0.5
"""What nodes have free is asked again after this long: Ray itself knows it no sooner. Seconds."""
ANSWER_S = 60.0
"""A node that has not said what it is after this long is not waited for, as long as others have."""
GIVE_UP_S = 150.0
"""Time in which some node must have said what it is."""
RETRY_S = 120.0
"""A node that could not be used is asked again after this long."""
GONE_S = 60.0
"""A probe for which there has been no node for this long is not waited for any more."""
SCALE_S = 900.0
"""The same where the cluster starts nodes by itself."""
_SHAKY_S = 30.0
"""A node on which a worker was lost may be dead before Ray has noticed; others are preferred meanwhile."""
_AT_ONCE_S = 0.0


@dataclass(frozen=True, slots=True)
class _Trouble:
    """Why a node is not used, and until when."""

    why: str
    until_t: float


class ClusterNodes:
    """The nodes of the cluster that this process has joined.

    Args:
        settings: how probes run.
        chosen: the class to stay with, where it was chosen before; else the first look chooses.
        parallel: probes for which a cluster that starts nodes by itself is asked for room; 0 asks only where there is none.
        say: takes a line for the person who waits.
    """

    def __init__(
        self, settings: RunSettings, chosen: NodeClass | None = None, *, parallel: int = 0, say: Callable[[str], None] = print
    ) -> None:
        self._settings = settings
        self.chosen = chosen
        self._names: dict[str, str] = {}
        self._nodes: tuple[ClusterNode, ...] = ()
        self._classes: dict[str, NodeClass] = {}
        self._asked: dict[str, tuple[Any, float]] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._lost_t: dict[str, float] = {}
        self._gone_t: dict[str, float] = {}
        self._free: Mapping[str, Resources] = {}
        self._free_t = -FRESH_S
        self._parallel, self._say = parallel, say
        self._has_asked = False
        self._looked_t: float | None = None
        self._has_begun = False
        self._largest: tuple[Resources, ...] = ()

    def begin(self) -> None:
        """Ask all nodes that have room for a probe, and choose the class.

        Raises:
            InputError: no node has room.
            MachineError: no node can say what it is.
        """
        if self._has_begun:
            return
        self.look(is_due=True)
        self._find_room()
        started = time.monotonic()
        while self._asked:
            waited_s = time.monotonic() - started
            if waited_s > GIVE_UP_S or (waited_s > ANSWER_S and self._classes):
                break
            self._take_answers(wait_s=1.0)
        self._choose()
        self._has_begun = True

    @property
    def patience_s(self) -> float:
        """How long a probe waits for a node that could hold it, seconds."""
        return SCALE_S if self._has_asked else GONE_S

    def close(self) -> None:
        """Give back the room that was asked for; nodes that nobody uses go by the cluster's own rules."""
        if self._has_asked:
            self._has_asked = False
            with contextlib.suppress(RayError, RuntimeError):
                ask_for({}, 0)

    def look(self, *, is_due: bool = False) -> None:
        """Take note of who lives and of what they said, now and then or when it `is_due`; ask those who are new."""
        now_t = time.monotonic()
        if not is_due and self._looked_t is not None and now_t - self._looked_t < LOOK_S:
            return
        self._looked_t = now_t
        self._nodes = read_nodes(ray.nodes(), self._names)  # type: ignore[no-untyped-call]
        self._names |= {node.id: node.name for node in self._nodes}
        living = {node.id for node in self._nodes}
        self._gone_t = {node_id: self._gone_t.get(node_id, now_t) for node_id in self._names if node_id not in living}
        self._troubles = {key: item for key, item in self._troubles.items() if item.until_t > now_t and key in living}
        self._asked = {node_id: item for node_id, item in self._asked.items() if node_id in living}
        wanted = wanted_of(self._settings)
        for node in self._nodes:
            known = (self._classes, self._asked, self._troubles)
            if count_slots(wanted, node.has) and not any(node.id in place for place in known):
                self._asked[node.id] = (_ask(node.id, self._settings), now_t)
        self._take_answers()
        of_it = of_class(self._nodes, self._classes, self.chosen)
        self._largest = tuple(node.has for node in of_it) or self._largest

    def usable(self) -> list[ClusterNode]:
        """Return the living nodes of the class that have no trouble."""
        return [node for node in of_class(self._nodes, self._classes, self.chosen) if node.id not in self._troubles]

    def require_room(self, settings: RunSettings) -> None:
        """Raise InputError where no nodes of the class, or of those that it had before they were gone, have room."""
        require_room(settings, self._largest)

    def adopt(self, settings: RunSettings) -> None:
        """Take the resources of one probe from other settings; raises InputError as `require_room`."""
        self.require_room(settings)
        self._settings = settings

    def facts(self) -> MachineFacts:
        """Return what the class is, on which nodes it is, and what is left out; after `begin`."""
        assert self.chosen is not None
        wanted = wanted_of(self._settings)
        used = [(node.name, count_slots(wanted, node.has)) for node in self.usable()]
        names = name_gangs([name for name, slots in used if slots], self._settings.nodes) if len(self._nodes) > 1 else ()
        slots = count_gangs([slots for _, slots in used], self._settings.nodes)
        slots = max(1, slots)  # all gone: the next probe waits, and says so if nobody comes back
        return MachineFacts(self.chosen.hardware, self.chosen.interpreter, slots, names, self._notes(wanted))

    def gone_s(self, node_id: str) -> float:
        """Return for how long a node has been known to be gone, seconds; 0 while it lives."""
        return time.monotonic() - self._gone_t[node_id] if node_id in self._gone_t else 0.0

    def lose(self, node_id: str) -> None:
        """Note that a worker was lost on a node."""
        self._lost_t[node_id] = time.monotonic()
        self._looked_t = 0.0

    def put_aside(self, node_id: str, why: str) -> bool:
        """Leave a node out for a while; return whether enough others of the class are left for a probe."""
        self._troubles[node_id] = _Trouble(why, time.monotonic() + RETRY_S)
        wanted = wanted_of(self._settings)
        return count_gangs([count_slots(wanted, node.has) for node in self.usable()], self._settings.nodes) > 0

    def busy(self, wanted: Resources) -> Collection[str]:
        """Return the ids of nodes on which a probe would wait, as far as Ray knows at the moment."""
        now_t = time.monotonic()
        if now_t - self._free_t > FRESH_S:
            self._free, self._free_t = _free_resources(), now_t
        return {node_id for node_id, has in self._free.items() if not count_slots(wanted, has)}

    def shaky(self) -> Collection[str]:
        """Return the ids of nodes on which a worker was lost a moment ago."""
        now_t = time.monotonic()
        return {node_id for node_id, lost_t in self._lost_t.items() if now_t - lost_t < _SHAKY_S}

    def _find_room(self) -> None:
        """Ask a cluster that starts nodes by itself for room, and wait for the first of it; others have it or never will."""
        sizes = [node.has for node in self._nodes]
        wanted = wanted_of(self._settings)
        num_slots = count_gangs([count_slots(wanted, has) for has in sizes], self._settings.nodes)
        if num_slots < max(1, self._parallel) and can_scale():
            self._has_asked = True
            ask_for(wanted, max(1, self._parallel) * self._settings.nodes)
            self._wait_for_node(wanted)
            sizes = [node.has for node in self._nodes]
        require_room(self._settings, sizes)

    def _wait_for_node(self, wanted: Resources) -> None:
        deadline, has_said = time.monotonic() + SCALE_S, False
        while not self._has_room(wanted) and time.monotonic() < deadline:
            if not has_said:
                self._say(f"waiting for the cluster to start a node (at most {SCALE_S / 60:g} min)")
                has_said = True
            time.sleep(LOOK_S)
            self.look(is_due=True)

    def _has_room(self, wanted: Resources) -> bool:
        return count_gangs([count_slots(wanted, node.has) for node in self._nodes], self._settings.nodes) > 0

    def _notes(self, wanted: Resources) -> tuple[str, ...]:
        roomy = [node for node in self._nodes if count_slots(wanted, node.has)]
        troubles = {node_id: item.why for node_id, item in self._troubles.items()}
        now_t = time.monotonic()
        late = [node_id for node_id, (_, asked_t) in self._asked.items() if now_t - asked_t > ANSWER_S]
        troubles |= dict.fromkeys(late, f"no answer within {ANSWER_S:g} s")
        return say_left_out(roomy, self._classes, self.chosen, troubles)

    def _take_answers(self, wait_s: float = _AT_ONCE_S) -> None:
        """Take what asked nodes have said, waiting at most so long for all of them."""
        if not self._asked:
            return
        refs = {ref: node_id for node_id, (ref, _) in self._asked.items()}
        ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=wait_s)
        for ref in ready:
            self._take_answer(refs[ref], ref)

    def _take_answer(self, node_id: str, ref: Any) -> None:
        del self._asked[node_id]
        try:
            found: NodeFacts = ray.get(ref)
        except RayError as error:
            self._put_off(node_id, f"no answer: {last_line(error)}")
            return
        if found.error:
            self._put_off(node_id, found.error)
        else:
            self._classes[node_id] = NodeClass(found.hardware_class, found.interpreter)

    def _put_off(self, node_id: str, why: str) -> None:
        self._troubles[node_id] = _Trouble(why, time.monotonic() + RETRY_S)

    def _choose(self) -> None:
        """Choose the class, unless it was chosen before; raises MachineError where nobody has said what it is."""
        if self.chosen is None:
            wanted, at_once = wanted_of(self._settings), self._settings.nodes
            self.chosen = choose_class(self._nodes, self._classes, wanted, at_once=at_once) or choose_class(
                self._nodes, self._classes, wanted
            )
        if self.chosen is None:
            raise self._nobody()
        self._largest = tuple(node.has for node in of_class(self._nodes, self._classes, self.chosen))
        require_room(self._settings, self._largest)

    def _nobody(self) -> MachineError:
        names: Mapping[str, str] = self._names
        for node_id, trouble in sorted(self._troubles.items(), key=lambda item: names[item[0]]):
            is_interpreter = trouble.why.startswith("the interpreter")
            hint = "name an interpreter that the nodes have with --python" if is_interpreter else "try `ray status`"
            return MachineError(f"no node can run probes; {names[node_id]}: {trouble.why}", hint=hint)
        return MachineError(f"no node has said within {GIVE_UP_S:g} s what it is", hint="try `ray status`")


def last_line(error: BaseException) -> str:
    """Return the last line of what an error says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__


def on_node(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Return the strategy by which a task runs on this node or not at all."""
    return NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)


def _ask(node_id: str, settings: RunSettings) -> Any:
    options = {"num_cpus": 0, "max_retries": 0, "scheduling_strategy": on_node(node_id)}
    return ray.remote(find_facts_task).options(**options).remote(settings)


def _free_resources() -> Mapping[str, Resources]:
    """Return by node what nobody takes at the moment, {} where this Ray does not say so."""
    try:
        from ray._private.state import available_resources_per_node

        return dict(available_resources_per_node())  # type: ignore[no-untyped-call]
    except (ImportError, RayError, RuntimeError):
        return {}
