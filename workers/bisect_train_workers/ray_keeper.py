"""Keeps one local Ray for several coordinators, in a process of its own: `python -m bisect_train_workers.ray_keeper`.

It prints one line of JSON, {address, env} or {error, hint}, and ends Ray when its input ends: whoever started it has gone or
wants no Ray any more. Whoever joins needs the variables of `env`: the token, without which this Ray lets nobody in.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import ray

from bisect_train.core.errors import BisectTrainError
from bisect_train_workers.node import find_node_home
from bisect_train_workers.probe_folders import sweep_private_folders
from bisect_train_workers.ray_session import RaySession, make_token
from bisect_train_workers.upkeep import bound_node


def main() -> int:
    """Start Ray, say where it is, wait for the end of the input, end Ray; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--temp-folder", type=Path)
    parser.add_argument("--node-home", default="")
    parser.add_argument("--cpus", type=int)
    given = parser.parse_args()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, signal.SIG_IGN)  # coordinators that end need Ray; the end of the input ends it
    try:
        session = RaySession(temp_folder=given.temp_folder, cpus=given.cpus)
    except BisectTrainError as error:
        print(json.dumps({"error": error.message, "hint": error.hint}), flush=True)
        return 1
    try:
        address = ray.get_runtime_context().gcs_address
        token = os.environ.get("RAY_AUTH_TOKEN") or make_token()
        print(json.dumps({"address": address, "env": {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}}), flush=True)
        with contextlib.suppress(OSError):
            while os.read(sys.stdin.fileno(), 4096):
                pass
    finally:
        session.close()
        home = find_node_home(given.node_home)
        sweep_private_folders(home)
        bound_node(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
