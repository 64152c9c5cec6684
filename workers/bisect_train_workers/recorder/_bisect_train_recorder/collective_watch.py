"""Sees the collective calls that the program makes itself, as they begin: a call that hangs is the last one recorded.

Calls are counted where the python functions of `torch.distributed` are entered, and none is added. What DDP starts from
C++ is unseen. Point-to-point calls differ between ranks by their nature: of them only a rank's first is told, since ranks that
make any may share data rightly, or call different things.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import zlib
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

MAX_EVENTS = 64  # of a process; then each new kind of call once
MAX_KINDS = 1024

# name -> parameter whose shape and dtype all ranks of the group must agree on; None: sizes may differ, or there are none
TENSOR_OF_CALL: Dict[str, Optional[str]] = {
    "all_reduce": "tensor",
    "broadcast": "tensor",
    "reduce": "tensor",
    "all_gather": "tensor",
    "all_gather_into_tensor": "input_tensor",
    "all_gather_single": "input_tensor",
    "gather": "tensor",
    "scatter": "tensor",
    "reduce_scatter": "output",
    "reduce_scatter_tensor": "output",
    "reduce_scatter_single": "output",
    "all_to_all": None,
    "all_to_all_single": None,
    "all_reduce_coalesced": None,
    "all_gather_coalesced": None,
    "barrier": None,
    "monitored_barrier": None,
    "broadcast_object_list": None,
    "all_gather_object": None,
    "gather_object": None,
    "scatter_object_list": None,
}
POINT_TO_POINT = ("send", "recv", "isend", "irecv", "batch_isend_irecv")


class CollectiveLog:
    """Counts calls, keeps a running digest of those that all ranks make, and writes the events."""

    def __init__(self, session: Any, distributed: Any) -> None:
        """Start with no calls."""
        self._session = session
        self._distributed = distributed
        self._num_calls = 0
        self._kinds: Set[str] = set()
        self._count = 0
        self._digest = 0

    def take(self) -> Tuple[int, int]:
        """Return number and digest of the calls over all ranks since the last time."""
        taken = self._count, self._digest
        self._count = self._digest = 0
        return taken

    def note(self, name: str, call: Dict[str, Any]) -> None:
        """Note a call that is about to begin.

        Args:
            call: its arguments by name, defaults left out.
        """
        shape, dtype = _shape_and_dtype(call.get(TENSOR_OF_CALL[name] or ""))
        ranks = self._ranks_of(call.get("group"))
        kind = f"{name} {shape} {dtype}"
        if ranks is None:
            self._count += 1
            self._digest = zlib.crc32(kind.encode(), self._digest)
        kind = f"{kind} {ranks}"
        is_new = kind not in self._kinds and len(self._kinds) < MAX_KINDS
        if is_new:
            self._kinds.add(kind)
        if is_new or self._num_calls < MAX_EVENTS:
            self._write(name, shape=shape, dtype=dtype, ranks=ranks, is_async=bool(call.get("async_op")))
        self._num_calls += 1

    def note_point_to_point(self, name: str) -> None:
        """Event point_to_point, of the first such call; it is neither counted nor digested."""
        self._session.event("point_to_point", op=name)

    def _write(self, name: str, *, shape: Any, dtype: Any, ranks: Any, is_async: bool) -> None:
        """Event collective."""
        data = {"idx": self._num_calls, "op": name, "shape": shape, "dtype": dtype, "async": is_async, "group": ranks}
        self._session.event("collective", **data)

    def _ranks_of(self, group: Any) -> Optional[List[int]]:
        """Return the ranks of a smaller group; None for the group of all ranks."""
        if group is None or group is getattr(self._distributed, "WORLD", None):
            return None
        ranks_of_group = getattr(self._distributed, "get_process_group_ranks", None)
        try:
            ranks = list(ranks_of_group(group)) if ranks_of_group is not None else []
        except Exception:  # this rank is no member: the call does nothing
            return []
        return None if len(ranks) == self._distributed.get_world_size() else ranks


def _shape_and_dtype(tensor: Any) -> Tuple[Optional[List[int]], Optional[str]]:
    """Return a tensor's shape and the name of its dtype, (None, None) for anything else."""
    if not hasattr(tensor, "dtype"):
        return None, None
    return list(tensor.shape), str(tensor.dtype).rsplit(".", 1)[-1]


def watch_collectives(distributed: Any, note: Callable[[str, Dict[str, Any]], None], is_compiling: Callable[[], bool]) -> None:
    """Replace torch's functions of TENSOR_OF_CALL wherever its modules hold them; calls within calls are not noted."""
    inside = threading.local()
    for name in TENSOR_OF_CALL:
        original = getattr(distributed, name, None)
        if original is not None:
            replace_in_torch(name, original, _watched(name, original, inside, note=note, is_compiling=is_compiling))


def _watched(name: str, original: Any, inside: Any, *, note: Any, is_compiling: Any) -> Any:
    """Return the function preceded by a note."""
    parameters = list(inspect.signature(original).parameters)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or getattr(inside, "is_noted", False):
            return original(*args, **kwargs)
        note(name, {**dict(zip(parameters, args)), **kwargs})
        inside.is_noted = True
        try:
            return original(*args, **kwargs)
        finally:
            inside.is_noted = False

    return call


def watch_point_to_point(distributed: Any, note: Callable[[str], None], is_compiling: Callable[[], bool]) -> None:
    """Replace torch's functions of POINT_TO_POINT by such as note the first call of them all.

    They stay replaced after it: torch compares `isend` and `irecv` by identity with what a program took hold of.
    """
    noted: List[str] = []
    for name in POINT_TO_POINT:
        original = getattr(distributed, name, None)
        if original is not None:
            replace_in_torch(name, original, _noted_once(name, original, noted, note=note, is_compiling=is_compiling))


def _noted_once(name: str, original: Any, noted: List[str], *, note: Any, is_compiling: Any) -> Any:
    """Return the function preceded by a note unless there was one."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not noted and not is_compiling():
            noted.append(name)
            note(name)
        return original(*args, **kwargs)

    return call


def replace_in_torch(name: str, original: Any, replacement: Any) -> None:
    """Set a function in every loaded module of `torch.distributed` that holds the original under its name."""
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("torch.distributed") and getattr(module, "__dict__", {}).get(name) is original:
            setattr(module, name, replacement)
