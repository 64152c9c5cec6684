"""Events for checkpoints: saved, loaded, and how well a state dict fitted."""

from __future__ import annotations

import functools
import os
from typing import Any, Callable, Dict, Sequence

from .outside_files import note_saved

MAX_EVENTS = 200
NUM_NAMES = 5


class CheckpointWatch:
    """Wraps torch's saving and loading; events come after the call has succeeded."""

    def __init__(self, session: Any) -> None:
        """Record at most MAX_EVENTS events."""
        self._session = session
        self._num_events = 0
        self._record = session.guarded(self._record_event)

    def install(self, torch: Any) -> None:
        """Patch `torch.save`, `torch.load` and `Module.load_state_dict`."""
        torch.save = self._wrap(torch.save, "checkpoint_saved", "torch.save", _path_of_save)
        torch.load = self._wrap(torch.load, "checkpoint_loaded", "torch.load", _path_of_load)
        self._watch_state_dict(torch.nn.Module)

    def install_distributed(self, module: Any) -> None:
        """Patch `save` and `load` of torch.distributed.checkpoint where they exist."""
        for name, event in (("save", "checkpoint_saved"), ("load", "checkpoint_loaded")):
            if hasattr(module, name):
                source = f"torch.distributed.checkpoint.{name}"
                wrapped = self._wrap(getattr(module, name), event, source, _checkpoint_id)
                setattr(module, name, wrapped)

    def _wrap(self, function: Any, event: str, source: str, path_of: Callable[..., Any]) -> Any:
        """Return the function followed by an event with the path."""
        path_of = self._session.guarded(path_of)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self._record(event, function=source, path=path_of(*args, **kwargs))
            return result

        return call

    def _watch_state_dict(self, module_class: Any) -> None:
        """Record the numbers of missing and unexpected keys."""
        original = module_class.load_state_dict

        @functools.wraps(original)
        def load_state_dict(self_module: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self_module, *args, **kwargs)
            self._record(
                "checkpoint_loaded",
                function="load_state_dict",
                path=None,
                **_describe_misfit("missing", getattr(result, "missing_keys", ())),
                **_describe_misfit("unexpected", getattr(result, "unexpected_keys", ())),
            )
            return result

        module_class.load_state_dict = load_state_dict

    def _record_event(self, event: str, **data: Any) -> None:
        """Write an event unless there are too many already."""
        self._num_events += 1
        if event == "checkpoint_saved":
            note_saved(data["path"])
        if self._num_events > MAX_EVENTS:
            return
        if event == "checkpoint_saved":
            read_hash = self._session.param_hash
            data["param_hash"] = None if read_hash is None else read_hash()
        self._session.event(event, **data)


def _describe_misfit(kind: str, keys: Sequence[str]) -> Dict[str, Any]:
    """Return number and first names of the keys that did not fit."""
    return {kind: len(keys), f"{kind}_names": list(keys)[:NUM_NAMES]}


def watch_distributed(session: Any, module: Any) -> None:
    """Watch torch.distributed.checkpoint, which programs import on their own."""
    CheckpointWatch(session).install_distributed(module)


def _path_text(file: Any) -> str:
    """Return the path of a path or an open file, else the kind of object in brackets."""
    if isinstance(file, (str, bytes, os.PathLike)):
        return os.fsdecode(os.fspath(file))
    name = getattr(file, "name", None)
    return name if isinstance(name, str) else f"<{type(file).__name__}>"


def _path_of_save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> str:
    """Path among the arguments of torch.save."""
    return _path_text(f)


def _path_of_load(f: Any, *args: Any, **kwargs: Any) -> str:
    """Path among the arguments of torch.load."""
    return _path_text(f)


def _checkpoint_id(*args: Any, checkpoint_id: Any = None, **kwargs: Any) -> Any:
    """Path among the arguments of torch.distributed.checkpoint's functions."""
    return None if checkpoint_id is None else _path_text(checkpoint_id)
