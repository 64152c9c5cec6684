"""From the variant's command with its placeholders to the argument list that is started.

Pure: nothing is run and nothing is looked up. A command that is a launcher already (`torchrun`, `deepspeed`,
`accelerate launch`) says where the number of ranks goes with `{ranks}`; a plain python command is put under torchrun. Where the
ranks are spread over nodes, each node's command is completed with its own place among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bisect_train.core.probe import ProbeSpec

SEED_STRIDE = 1_000_003
PLACEHOLDERS = ("config", "local_ranks", "master_addr", "nnodes", "node_rank", "out", "port", "ranks", "seed", "steps")
LOOPBACK = "127.0.0.1"
WHOLE_COMMAND = "{command}"
"""In the command of a restart: all arguments of the variant's own command."""

_PLACEHOLDER = re.compile(r"\{(" + "|".join(PLACEHOLDERS) + r")\}")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_LAUNCHER_MODULES = frozenset(
    {"torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)
_FLAGS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})


class CommandError(Exception):
    """The command cannot be completed; the message is for the user."""


@dataclass(frozen=True, slots=True)
class Share:
    """One node's place among the nodes that run a probe's ranks together.

    Attributes:
        idx: of the node, from 0; ranks are numbered through the nodes in this order.
        nodes: how many there are.
        address: of the first node, where the ranks meet.
    """

    idx: int = 0
    nodes: int = 1
    address: str = LOOPBACK


@dataclass(frozen=True, slots=True)
class Places:
    """What the placeholders stand for in one probe.

    Attributes:
        python: interpreter that `python` stands for.
        config: path for `{config}`, "" if the variant has none.
        out: absolute folder for the program's own output.
        port: free TCP port on this node, of several on the first.
        share: this node's place among those of the probe.
    """

    python: str
    config: str
    out: str
    port: int
    share: Share = Share()


def program_seed(seed_idx: int) -> int:
    """Return the number that `{seed}` stands for, 0 for seed index 0."""
    return seed_idx * SEED_STRIDE % 2**31


def has_placeholder(command: Sequence[str], name: str) -> bool:
    """Return whether `{name}` occurs in a command."""
    return any("{" + name + "}" in argument for argument in command)


def complete_command(spec: ProbeSpec, places: Places, *, is_launched: bool = False) -> list[str]:
    """Return the argument list of a probe's program.

    Args:
        spec: variant and number of ranks.
        places: what the placeholders stand for.
        is_launched: whether a single rank, too, is put under torchrun: it goes on where several have been.
    Raises:
        CommandError: empty command, a placeholder that has no value here, or a launcher that does not know of several nodes.
    """
    command = spec.variant.command
    if not command:
        raise CommandError("the training command is empty")
    starts_ranks = has_placeholder(command, "ranks") or has_placeholder(command, "local_ranks")
    arguments = use_python(fill_placeholders(command, spec, places), places.python)
    if places.share.nodes > 1:
        _require_nodes_known(command, arguments, places, starts_ranks=starts_ranks)
    if (spec.ranks > 1 or is_launched) and not starts_ranks:
        arguments = wrap_in_torchrun(arguments, ranks=spec.ranks, places=places)
    return [*fill_placeholders(spec.variant.launcher, spec, places), *arguments]


def _require_nodes_known(command: Sequence[str], arguments: Sequence[str], places: Places, *, starts_ranks: bool) -> None:
    """Raise CommandError for a command that would start all ranks, or none of them, on each of several nodes."""
    if has_placeholder(command, "node_rank") or (not starts_ranks and _split_python(arguments, places.python) is not None):
        return
    raise CommandError(
        f"its ranks are to run on {places.share.nodes} nodes, but the command starts them itself and does not say on which "
        "node: with torchrun, --nnodes {nnodes} --node-rank {node_rank} --nproc-per-node {local_ranks} "
        "--master-addr {master_addr} --master-port {port}"
    )


def insert_command(arguments: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    """Return arguments in which each `{command}` that stands alone is replaced by all arguments of a command."""
    return tuple(part for argument in arguments for part in (command if argument == WHOLE_COMMAND else (argument,)))


def fill_placeholders(command: Sequence[str], spec: ProbeSpec, places: Places) -> list[str]:
    """Return the command with its placeholders filled; other braces, such as JSON text, stay as they are."""
    steps = spec.rung.steps
    values = {
        "config": places.config,
        "out": places.out,
        "local_ranks": str(spec.ranks // places.share.nodes),
        "master_addr": places.share.address,
        "nnodes": str(places.share.nodes),
        "node_rank": str(places.share.idx),
        "port": str(places.port),
        "ranks": str(spec.ranks),
        "seed": str(program_seed(spec.seed_idx)),
        "steps": "" if steps is None else str(steps),
    }
    if steps is None and has_placeholder(command, "steps"):
        raise CommandError("the command contains {steps}, which has no value when the program runs to its end")
    if not places.config and has_placeholder(command, "config"):
        raise CommandError("the command contains {config}, but no config file is known: give --config")
    return [_PLACEHOLDER.sub(lambda match: values[match[1]], argument) for argument in command]


def use_python(arguments: Sequence[str], python: str) -> list[str]:
    """Return the arguments with `python` or `python3` as the program replaced by the caller's interpreter."""
    first, *rest = arguments
    return [python if first in ("python", "python3") else first, *rest]


def wrap_in_torchrun(arguments: Sequence[str], *, ranks: int, places: Places) -> list[str]:
    """Return a plain python command put under torchrun; any other command is returned as it is."""
    split = _split_python(arguments, places.python)
    if split is None:
        return list(arguments)
    flags, rest = split
    share = places.share
    of_nodes = ["--nnodes", str(share.nodes), "--node-rank", str(share.idx)] if share.nodes > 1 else []
    launcher = [
        *(arguments[0], "-m", "torch.distributed.run", *of_nodes, "--nproc-per-node", str(ranks // share.nodes)),
        *("--master-addr", share.address, "--master-port", str(places.port)),
    ]
    if any(flag != "-u" for flag in flags) or rest[0] == "-c":
        return [*launcher, "--no-python", *arguments]
    return [*launcher, *rest]


def _split_python(arguments: Sequence[str], python: str) -> tuple[list[str], list[str]] | None:
    """Split `python -u -m module args` after the interpreter's own flags; None if it is not a plain python command."""
    name = arguments[0].rsplit("/", 1)[-1]
    if arguments[0] != python and not _PYTHON.fullmatch(name):
        return None
    idx = 1
    while idx < len(arguments) and arguments[idx].startswith("-") and arguments[idx] not in ("-m", "-c", "-"):
        idx += 2 if arguments[idx] in _FLAGS_WITH_VALUE else 1
    rest = list(arguments[idx:])
    if not rest or rest == ["-m"] or (rest[0] == "-m" and rest[1] in _LAUNCHER_MODULES):
        return None
    return list(arguments[1:idx]), rest
