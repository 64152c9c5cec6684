"""Where the processes of a run stood when it was ended: reads the stacks that python's faulthandler wrote.

A text has one block per thread, the innermost frame first. Of the main thread two frames are told: the innermost one of the
user's code, and what it called in torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FILE_NAME = re.compile(r"stacks-rank(\d+)-pid(\d+)")
_THREAD = re.compile(r"^(?:Current thread|Thread) ")
_FRAME = re.compile(r'^\s*File "(?P<path>[^"]*)", line (?P<line>\d+|\?+)(?: in (?P<function>.*))?$')
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<")
_OWN = "_bisect_train_recorder"
_LAUNCHER = re.compile(r"torch/distributed/(?:run|launch|launcher|elastic)\b|deepspeed/launcher/|accelerate/commands/")
_SPAWNING = re.compile(r"torch/multiprocessing/spawn\.py$")
_DISTRIBUTED = re.compile(r"torch/(?:distributed|nn/parallel)/")
_PREPARING = re.compile(r"torch/_(?:inductor|dynamo|functorch)/|torch/utils/cpp_extension|importlib|/subprocess\.py$|triton/")
_PLUMBING = frozenset(
    {"wrapper", "inner", "decorate_context", "_call_impl", "_wrapped_call_impl", "__call__", "_fn", "func_wrapper"}
)
_INIT_CALLS = frozenset(
    {"init_process_group", "_rendezvous_helper", "_create_c10d_store", "rendezvous", "_env_rendezvous_handler"}
)
_WAITING_CALLS = frozenset(
    {"wait", "acquire", "join", "select", "poll", "recv", "recv_bytes", "_recv", "accept", "_try_get_data"}
)
COLLECTIVES = frozenset(
    {
        *(
            "all_reduce",
            "all_reduce_coalesced",
            "all_gather",
            "all_gather_into_tensor",
            "all_gather_object",
            "all_gather_coalesced",
        ),
        *(
            "reduce_scatter",
            "reduce_scatter_tensor",
            "reduce",
            "broadcast",
            "broadcast_object_list",
            "barrier",
            "monitored_barrier",
        ),
        *("gather", "gather_object", "scatter", "scatter_object_list", "all_to_all", "all_to_all_single"),
        *("send", "recv", "isend", "irecv", "batch_isend_irecv", "new_group", "destroy_process_group"),
    }
)


@dataclass(frozen=True, slots=True)
class Wait:
    """Where one process stood.

    Attributes:
        rank: of the process, as its environment says.
        pid: process id, as text.
        call: what the user's code had called in torch (`barrier`), or "".
        user: innermost function of the user's code with its file (`save (train.py)`), or "".
        place: both with folder and line (`barrier (distributed/distributed_c10d.py:9), called from save (repo/train.py:3)`);
            of a launcher its innermost frame.
        is_in_init: whether it was making the process group.
        is_waiting: whether it waited for others: a collective, the process group, a lock, a socket, a queue.
        is_preparing: whether it was compiling, importing or running another program.
        is_launcher: whether it is a launcher and no rank.
    """

    rank: int
    pid: str
    call: str = ""
    user: str = ""
    place: str = ""
    is_in_init: bool = False
    is_waiting: bool = False
    is_preparing: bool = False
    is_launcher: bool = False

    @property
    def text(self) -> str:
        """Return `barrier, called by save (train.py)`, or what there is of it."""
        if self.call and self.user:
            return f"{self.call}, called by {self.user}"
        return self.call or self.user or "no frame of the program"


@dataclass(frozen=True, slots=True)
class _Frame:
    path: str
    function: str
    line: str

    @property
    def place(self) -> str:
        return f"{self.function} ({'/'.join(self.path.split('/')[-2:])}:{self.line})"

    @property
    def is_user(self) -> bool:
        return not _LIBRARY.search(self.path) and not _DISTRIBUTED.search(self.path) and _OWN not in self.path


def read_waits(stacks: Sequence[tuple[str, str]]) -> tuple[Wait, ...]:
    """Return where each rank's processes stood, by rank; launchers are left out where ranks are known.

    Args:
        stacks: (file name, text), as a probe's result has them.
    """
    found = [wait for name, text in stacks if (wait := read_wait(name, text)) is not None]
    ranks = [wait for wait in found if not wait.is_launcher]
    return tuple(sorted(ranks or found, key=lambda wait: (wait.rank, wait.pid)))


def read_wait(name: str, text: str) -> Wait | None:
    """Return where one process stood; None where its file's name says no rank, or its text has no frame."""
    said = _FILE_NAME.search(name)
    frames = _main_thread(text)
    if said is None or not frames:
        return None
    user = next((frame for frame in frames if frame.is_user), None)
    inner = frames[: frames.index(user)] if user else frames
    is_in_init, is_launcher = any(frame.function in _INIT_CALLS for frame in inner), _is_launcher(frames)
    frame_of_call = _frame_of_call(inner)
    call = _name_call(frame_of_call)
    innermost = frames[0]
    return Wait(
        rank=int(said.group(1)),
        pid=said.group(2),
        call="init_process_group" if is_in_init else call,
        user=f"{user.function} ({user.path.rsplit('/', 1)[-1]})" if user else "",
        place=innermost.place if is_launcher else _say_place(frame_of_call, user),
        is_in_init=is_in_init,
        is_waiting=is_in_init or call in COLLECTIVES or innermost.function in _WAITING_CALLS or _is_distributed(inner),
        is_preparing=any(_PREPARING.search(frame.path) for frame in inner),
        is_launcher=is_launcher,
    )


def _is_launcher(frames: Sequence[_Frame]) -> bool:
    """Return whether the thread is that of torchrun, deepspeed, accelerate, or of a parent that waits for spawned ranks."""
    is_parent = any(_SPAWNING.search(frame.path) and frame.function in ("join", "start_processes") for frame in frames)
    return is_parent or any(_LAUNCHER.search(frame.path) for frame in frames)


def _is_distributed(inner: Sequence[_Frame]) -> bool:
    return any(_DISTRIBUTED.search(frame.path) for frame in inner)


def _frame_of_call(inner: Sequence[_Frame]) -> _Frame | None:
    """Return the frame of the collective, else that of the outermost call that is no plumbing."""
    known = next((frame for frame in inner if frame.function in COLLECTIVES), None)
    named = [frame for frame in inner if frame.function not in _PLUMBING and _OWN not in frame.path]
    return known or (named[-1] if named else None)


def _name_call(frame: _Frame | None) -> str:
    """Return the function of a call; a class's own constructor has its file's name."""
    if frame is None:
        return ""
    return f"{frame.function} of {frame.path.rsplit('/', 1)[-1]}" if frame.function == "__init__" else frame.function


def _say_place(call: _Frame | None, user: _Frame | None) -> str:
    return ", called from ".join(frame.place for frame in (call, user) if frame is not None)


def _main_thread(text: str) -> list[_Frame]:
    """Return the frames of the thread that runs the script, innermost first: it ends in `<module>`, else it is the last.

    Frames before any thread's head line are a thread, too.
    """
    threads: list[list[_Frame]] = [[]]
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
            continue
        frame = _FRAME.match(line)
        if frame:
            threads[-1].append(_Frame(frame.group("path"), (frame.group("function") or "").strip(), frame.group("line")))
    threads = [thread for thread in threads if thread]
    scripts = [thread for thread in threads if thread[-1].function in ("<module>", "_run_module_as_main", "_run_code")]
    return (scripts or threads or [[]])[-1]
