"""What the stand-in recorder does at the start of every python process."""

import ctypes
import faulthandler
import os
import signal
import time
from pathlib import Path

session = None


class Session:
    def __init__(self, settings, sys, json):
        self.settings, self.json = settings, json
        self.rank = int(os.environ.get("RANK", "0"))
        out, name = Path(settings["out"]), f"rank{self.rank}-pid{os.getpid()}"
        self.file = (out / f"{name}.jsonl").open("a", buffering=1)
        self.stacks = (out / f"stacks-{name}.txt").open("w")
        faulthandler.register(signal.SIGUSR1, file=self.stacks)
        world_size = int(os.environ.get("WORLD_SIZE", "1"))
        self.write(
            type="start",
            recorder="fake",
            python="3",
            executable=sys.executable,
            rank=self.rank,
            world_size=world_size,
            pid=os.getpid(),
            ppid=os.getppid(),
            argv=[],
            t=time.time(),
            channel="fake",
        )
        self.num_steps = 0
        self.chained = sys.excepthook
        sys.excepthook = self.on_exception

    def write(self, **line):
        self.file.write(self.json.dumps(line) + "\n")

    def event(self, name, **data):
        self.write(type="event", name=name, step=self.num_steps, t=time.time(), data=data)

    def on_exception(self, kind, error, trace):
        text = f"{kind.__name__}: {error}"
        self.event(
            "exception",
            exc_type=kind.__name__,
            message=str(error),
            signature=f"{text} @ fake",
            missing_module=getattr(error, "name", None) if kind is ModuleNotFoundError else None,
        )
        self.chained(kind, error, trace)


def start(path, sys, json):
    global session
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    session = Session(json.loads(path.read_text()), sys, json)
