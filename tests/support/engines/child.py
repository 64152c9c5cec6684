"""In a fork of the host: one engine from start to end, under the recorder or without it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from typing import Any, NoReturn


def run_engine(job: dict[str, Any]) -> NoReturn:
    """Run one rank of an engine and leave with its status, exit handlers run."""
    status = 0
    try:
        if job["recorder"]:
            sys.path.insert(0, job["recorder"])
            __import__("_bisect_train_recorder").start("sitecustomize")
        import torch

        torch.set_num_threads(1)
        if job["ranks"] > 1:
            torch.distributed.init_process_group("gloo")
        from all_engines import ENGINES

        ENGINES[job["engine"]]()
        if job["ranks"] > 1:
            torch.distributed.destroy_process_group()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 0
    except BaseException:
        traceback.print_exc()
        status = 1
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
