"""A bisection on clusters that start nodes by themselves: room is asked for, used, and given back; Ray's own fake provider."""

from __future__ import annotations

import contextlib
import json
import os
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
    "provider": {"type": "external", "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider"},
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
def scaling_cluster(folder: Path, *, is_v2: bool) -> Iterator[str]:
    """Start a head without CPUs and its autoscaler; give its address. All of it, and nothing else, is ended afterwards."""
    port, own = free_port(), get_node_ip_address()  # type: ignore[no-untyped-call]
    provider = {**CLUSTER["provider"], "gcs_address": f"{own}:{port}", "launch_multiple": is_v2}
    (folder / "cluster.json").write_text(json.dumps({**CLUSTER, "provider": {**provider, "head_node_id": HEAD_ID}}))
    temp = tempfile.mkdtemp(prefix="bt-s-", dir="/tmp")  # sockets lie in it: the path must be short
    env = {**os.environ, **JOIN, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_TMPDIR": temp}
    env |= {
        "BISECT_TRAIN_NODE_HOME": str(folder / "node"),
        "BT_SCALED": str(folder),
        "RAY_OVERRIDE_NODE_ID_FOR_TESTING": HEAD_ID,
    }
    if is_v2:
        env |= {"RAY_enable_autoscaler_v2": "1", "RAY_CLOUD_INSTANCE_ID": HEAD_ID}
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}", "--num-cpus=0"]
    ray += [f"--autoscaling-config={folder / 'cluster.json'}", "--include-dashboard=false", "--object-store-memory=80000000"]
    try:
        done = subprocess.run(ray, env=env, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (address,) = {line.split("'")[1] for line in done.stdout.splitlines() if "--address='" in line}
        yield address
    finally:
        for process in processes_of(folder):
            with contextlib.suppress(psutil.Error):
                process.kill()


def processes_of(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("BT_SCALED") == str(folder):
                found.append(process)
    return found


def raylets_of(folder: Path) -> int:
    return sum(Path(process.cmdline()[0]).name == "raylet" for process in processes_of(folder) if process.cmdline())


@pytest.mark.parametrize("is_v2", [False, True], ids=["v1", "v2"])
def test_nodes_are_started_for_a_bisection_and_go_after_it(tmp_path: Path, is_v2: bool) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commits = [
        repo.commit({"train.py": TRAIN, "level.py": f"LEVEL = {2.0 if idx >= CULPRIT else 1.0}\n", f"notes{idx}.txt": "note\n"})
        for idx in range(NUM_COMMITS)
    ]
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    line = CommandLine(repo.path, tmp_path / "home", env=dict(JOIN))
    with scaling_cluster(tmp_path, is_v2=is_v2) as address:
        assert raylets_of(tmp_path) == 1
        asked = ["--good", commits[0], "--recipe", str(tmp_path / "recipe.yaml"), "--python", sys.executable, "--no-warm"]
        asked += ["--address", address, "--parallel", "2", "--json", str(tmp_path / "report.json"), "--quiet"]
        status, said = line.run("run", *asked, timeout_s=240)
        print(said)
        most = raylets_of(tmp_path)
        ended_t = time.monotonic()
        while raylets_of(tmp_path) > 1:
            assert time.monotonic() - ended_t < 120, "nodes that nobody asks for stay"
            time.sleep(0.5)
        print(f"{most - 1} nodes at the end, none {time.monotonic() - ended_t:.0f} s later")
    assert status == 0, said
    assert "waiting for the cluster to start a node" in said
    report = json.loads((tmp_path / "report.json").read_text())
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT]]
    store = open_store(line.home)
    used = {stored.result.node for stored in store.results(store.list()[0].id)}
    store.close()
    assert len(used) == 2, used
