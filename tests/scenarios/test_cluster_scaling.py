"""A bisection on a cluster that starts nodes by itself: room is asked for, used, and given back.

Ray's own fake provider starts the nodes. It cannot show that they go: the autoscaler does not see that they are idle.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.util import get_node_ip_address

from bisect_train.store.home import open_store
from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo
from tests.support.ray_nodes import JOIN

NUM_COMMITS, CULPRIT = 12, 7
TRAIN = """\
import random, time, level
random.seed(3)
for step in range(4):
    time.sleep(0.2)
    print(f"step {step} loss {level.LEVEL + random.gauss(0, 0.01):.6f}", flush=True)
"""
RECIPE = {
    "command": ["python", "train.py"],
    "shrink": {"steps": ["end"]},
    "metrics": {"loss": {"from": "log", "pattern": "loss ([0-9.]+)", "better": "lower"}},
}
WORKERS = {"worker": {"resources": {"CPU": 1, "object_store_memory": 80_000_000}, "node_config": {}, "max_workers": 3}}
CLUSTER: dict[str, Any] = {
    "cluster_name": "scaled",
    "max_workers": 3,
    "idle_timeout_minutes": 0.1,
    "upscaling_speed": 1.0,
    "provider": {"type": "fake_multinode", "disable_node_updaters": True, "disable_launch_config_check": True},
    "available_node_types": {
        **WORKERS,
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
    },
    "head_node_type": "ray.head.default",
    "auth": {},
    "docker": {},
    "initialization_commands": [],
    "setup_commands": [],
    "head_setup_commands": [],
    "worker_setup_commands": [],
    "head_start_ray_commands": [],
    "worker_start_ray_commands": [],
    "file_mounts": {},
    "cluster_synced_files": [],
    "file_mounts_sync_continuously": False,
    "rsync_exclude": [],
    "rsync_filter": [],
}
HEAD_ID = "fffffffffffffffffffffffffffffffffffffffffffffffffff00000"

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(600)]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def scaling_cluster(folder: Path) -> Iterator[str]:
    """Start a head without CPUs and its autoscaler; give its address. All of it, and nothing else, is ended afterwards."""
    port, own = free_port(), get_node_ip_address()  # type: ignore[no-untyped-call]
    provider = {**CLUSTER["provider"], "gcs_address": f"{own}:{port}", "head_node_id": HEAD_ID}
    (folder / "cluster.json").write_text(json.dumps({**CLUSTER, "provider": provider}))
    temp = tempfile.mkdtemp(prefix="bt-s-", dir="/tmp")  # sockets lie in it: the path must be short
    env = {**os.environ, **JOIN, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_TMPDIR": temp}
    env |= {
        "BISECT_TRAIN_NODE_HOME": str(folder / "node"),
        "BT_SCALED": str(folder),
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}", "--num-cpus=0"]
    ray += [f"--autoscaling-config={folder / 'cluster.json'}", "--include-dashboard=false", "--object-store-memory=80000000"]
    try:
        done = subprocess.run(ray, env=env, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (address,) = {line.split("'")[1] for line in done.stdout.splitlines() if "--address='" in line}
        yield address
    finally:
        left = processes_of(folder)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=10)
        shutil.rmtree(temp, ignore_errors=True)


def processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("BT_SCALED") == str(folder):
                found.append(process)
    return found


def raylets_of(folder: Path) -> int:
    return sum(Path(process.cmdline()[0]).name == "raylet" for process in processes_of(folder) if process.cmdline())


ASKED = """
import json, sys, ray
from ray.experimental.internal_kv import _internal_kv_get
ray.init(address=sys.argv[1], log_to_driver=False)
print("asked", json.loads(_internal_kv_get("__autoscaling_status"))["load_metrics_report"]["request_demand"])
"""


def asked_of(address: str, line: CommandLine) -> str:
    """Return the room that the autoscaler has been asked for."""
    command = [sys.executable, "-c", ASKED, address]
    done = subprocess.run(command, env=line.environment, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


def test_room_is_asked_for_used_and_given_back(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commits = [
        repo.commit({"train.py": TRAIN, "level.py": f"LEVEL = {2.0 if idx >= CULPRIT else 1.0}\n", f"notes{idx}.txt": "note\n"})
        for idx in range(NUM_COMMITS)
    ]
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    line = CommandLine(repo.path, tmp_path / "home", env=dict(JOIN))
    with scaling_cluster(tmp_path) as address:
        assert raylets_of(tmp_path) == 1
        asked = ["--good", commits[0], "--recipe", str(tmp_path / "recipe.yaml"), "--python", sys.executable, "--no-warm"]
        asked += ["--address", address, "--parallel", "2", "--json", str(tmp_path / "report.json"), "--quiet"]
        output = tmp_path / "out.txt"
        with output.open("w") as into:
            process = line.start("run", *asked, output=into)
            while not any(event.kind == "probe_finished" for event in line.events()):
                assert process.poll() is None, output.read_text()
                time.sleep(0.2)
            during = asked_of(address, line)
            status = process.wait(240)
        said, after = output.read_text(), ""
        deadline = time.monotonic() + 20.0
        while after != "asked []" and time.monotonic() < deadline:
            after = asked_of(address, line)
        print(said)
        assert raylets_of(tmp_path) == 3
    assert (during, after) == ("asked [[{'CPU': 1}, 2]]", "asked []")
    assert status == 0, said
    assert "waiting for the cluster to start a node" in said
    report = json.loads((tmp_path / "report.json").read_text())
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT]]
    store = open_store(line.home)
    used = {stored.result.node for stored in store.results(store.list()[0].id)}
    store.close()
    assert len(used) == 2, used
