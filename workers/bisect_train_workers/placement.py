"""What one probe takes of a node, in Ray's words, and how many of it fit; pure.

Ray would wait for ever for a node that does not exist: what no node can hold is refused here, with what is asked and the most
that a node has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bisect_train.core.amounts import say_size
from bisect_train.core.errors import InputError
from bisect_train.core.probe import RunSettings

Resources = Mapping[str, float]
"""Amounts by Ray's names: CPU, GPU, memory (bytes), accelerator_type:NAME, and whatever the cluster's people have added."""

_ACCELERATOR = "accelerator_type:"
_SOME = 0.001
"""What Ray takes of an accelerator's name: a sliver, since the name only says where."""
_ROUNDING = 1e-9


def wanted_of(settings: RunSettings) -> dict[str, float]:
    """Return what one probe takes; what it takes nothing of is left out."""
    wanted = {"CPU": settings.cpus, "GPU": settings.gpus, "memory": float(settings.memory), **dict(settings.custom)}
    if settings.accelerator:
        wanted[_ACCELERATOR + settings.accelerator] = _SOME
    return {name: amount for name, amount in wanted.items() if amount > 0}


def task_options(settings: RunSettings) -> dict[str, Any]:
    """Return the same as options of a Ray task, which is never retried by Ray."""
    options: dict[str, Any] = {"num_cpus": settings.cpus, "num_gpus": settings.gpus, "max_retries": 0}
    if settings.memory:
        options["memory"] = settings.memory
    if settings.custom:
        options["resources"] = dict(settings.custom)
    if settings.accelerator:
        options["accelerator_type"] = settings.accelerator
    return options


def count_slots(wanted: Resources, has: Resources) -> int:
    """Return how many probes that take `wanted` fit on a node at the same time; one that takes nothing takes a CPU."""
    counts = [int(has.get(name, 0.0) / amount + _ROUNDING) for name, amount in wanted.items() if amount > 0]
    return min(counts, default=int(has.get("CPU", 1.0)))


def count_gangs(slots: Iterable[int], nodes: int) -> int:
    """Return how many probes of so many different nodes each fit at the same time, where a node has room for so many shares."""
    slots = list(slots)
    if nodes <= 1:
        return sum(slots)
    most = sum(slots) // nodes
    return next((num for num in range(most, 0, -1) if sum(min(slot, num) for slot in slots) >= num * nodes), 0)


def left_of(has: Resources, taken: Iterable[Resources]) -> dict[str, float]:
    """Return what is left of a node's resources."""
    left = dict(has)
    for wanted in taken:
        for name, amount in wanted.items():
            left[name] = left.get(name, 0.0) - amount
    return left


def require_room(settings: RunSettings, nodes: Sequence[Resources]) -> None:
    """Raise InputError where no node, or fewer than the probe takes, has the resources of one probe, or of its share."""
    wanted = wanted_of(settings)
    num_able = sum(count_slots(wanted, has) >= 1 for has in nodes)
    if num_able >= settings.nodes:
        return
    if num_able:
        raise _too_few(settings, num_able, len(nodes))
    plain = {name: amount for name, amount in wanted.items() if name in ("CPU", "GPU")}
    if not any(count_slots(plain, has) >= 1 for has in nodes):
        raise _no_cpus_or_gpus(settings, nodes)
    for name, amount in wanted.items():
        if max((has.get(name, 0.0) for has in nodes), default=0.0) < amount:
            raise _lacking(name, amount, nodes)
    asked = ", ".join(_say(name, amount) for name, amount in wanted.items())
    raise InputError(
        f"no single node has all that one probe takes: {asked}",
        hint="ask for less in the recipe's `resources`; `ray status -v` says what each node has",
    )


def _too_few(settings: RunSettings, num_able: int, num: int) -> InputError:
    asked = ", ".join(_say(name, amount) for name, amount in wanted_of(settings).items())
    there = "the only node has" if num == 1 else f"{num_able} of {num} nodes {'has' if num_able == 1 else 'have'}"
    return InputError(
        f"one probe takes {settings.nodes} nodes of one class ({settings.ranks_per_node} ranks per node) with {asked} each, "
        f"and {there} that",
        hint="join a cluster that has them with --address, or take fewer ranks, or another `resources: ranks_per_node`",
    )


def _no_cpus_or_gpus(settings: RunSettings, nodes: Sequence[Resources]) -> InputError:
    pairs = [(has.get("GPU", 0.0), has.get("CPU", 0.0)) for has in nodes]
    gpus, cpus = max(pairs, default=(0.0, 0.0))
    most_cpus = max((cpus for _, cpus in pairs), default=0.0)
    hint = "ask for less with --gpus or --ranks, or spread the ranks over nodes with the recipe's `resources: ranks_per_node`"
    if settings.cpus > most_cpus and not settings.gpus:
        share = f"`resources: {{cpus: {max(most_cpus, 1.0):g}}}` in the recipe"
        hint = f"take fewer --ranks, let them share CPUs ({share}), or spread them over nodes (`resources: ranks_per_node`)"
    elif settings.gpus > gpus:
        hint = "ask for fewer with --gpus or the recipe's `resources`, or join a cluster that has them with --address"
    return InputError(
        f"no node has the {settings.cpus:g} CPUs and {settings.gpus:g} GPUs of one probe; the largest of {len(nodes)} "
        f"has {cpus:g} CPUs and {gpus:g} GPUs",
        hint=hint,
    )


def _lacking(name: str, amount: float, nodes: Sequence[Resources]) -> InputError:
    if name.startswith(_ACCELERATOR):
        known = sorted({other.removeprefix(_ACCELERATOR) for has in nodes for other in has if other.startswith(_ACCELERATOR)})
        return InputError(
            f"no node has the accelerator {name.removeprefix(_ACCELERATOR)} (`resources: accelerator`); "
            f"there {'is' if len(known) == 1 else 'are'} {', '.join(known) or 'none'}",
            hint="accelerators are called as Ray calls them: `ray status -v` lists accelerator_type:NAME",
        )
    most = max((has.get(name, 0.0) for has in nodes), default=0.0)
    where = "memory" if name == "memory" else f"custom: {{{name}: ...}}"
    return InputError(
        f"no node has the {_say(name, amount)} of one probe (`resources: {where}`); the most of any is {_say(name, most)}",
        hint="ask for less in the recipe's `resources`; `ray status -v` says what each node has",
    )


def _say(name: str, amount: float) -> str:
    if name == "memory":
        return f"{say_size(int(amount))} of memory"
    if name.startswith(_ACCELERATOR):
        return f"the accelerator {name.removeprefix(_ACCELERATOR)}"
    return f"{amount:g} {name}{'s' if name in ('CPU', 'GPU') and amount != 1 else ''}"
