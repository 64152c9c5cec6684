"""Bisections on hosts that share nothing: killed, cut off, of another class, added while it runs, and several to a probe."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from bisect_train.store.home import open_store
from tests.support.command_line import CommandLine
from tests.support.git_repos import UserRepo
from tests.support.net_nodes import TEMP, Hosts, can_have_hosts, net_hosts
from tests.support.ray_nodes import JOIN, ray_nodes

NUM_COMMITS, CULPRIT = 40, 23
TRAIN = """\
import os, random, time, level
random.seed(3)
for step in range(20):
    time.sleep(0.1)
    print(f"step {step} loss {level.LEVEL + random.gauss(0, 0.01):.6f}", flush=True)
"""
RECIPE = {
    "command": ["python", "train.py"],
    "shrink": {"steps": ["end"]},
    "metrics": {"loss": {"from": "log", "pattern": "loss ([0-9.]+)", "better": "lower"}},
}

pytestmark = [
    pytest.mark.scenario,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not can_have_hosts(), reason="network namespaces need root"),
]


def wait_for_probes(line: CommandLine, process: subprocess.Popen[str], num: int, output: Path) -> None:
    while sum(event.kind == "probe_finished" for event in line.events()) < num:
        assert process.poll() is None, output.read_text()
        time.sleep(0.1)


def wait_until_ended(hosts: Hosts, name: str, *, limit_s: float) -> float:
    """Wait until no program of a probe runs on a host; return how long it took, seconds."""
    started = time.monotonic()
    while any("train.py" in process.cmdline() for process in hosts.processes(name)):
        assert time.monotonic() - started < limit_s
        time.sleep(0.5)
    return time.monotonic() - started


def test_hosts_that_share_nothing_find_the_culprit_though_they_die_and_are_cut_off(tmp_path: Path) -> None:
    folder = tmp_path / "coordinator"
    folder.mkdir()
    repo = UserRepo.create(folder / "repo")
    commits = [
        repo.commit({"train.py": TRAIN, "level.py": f"LEVEL = {2.0 if idx >= CULPRIT else 1.0}\n", f"notes{idx}.txt": "note\n"})
        for idx in range(NUM_COMMITS)
    ]
    (folder / "recipe.yaml").write_text(json.dumps(RECIPE))
    output, line = folder / "out.txt", CommandLine(repo.path, folder / "home", env=dict(JOIN))
    with net_hosts(folder) as hosts:
        for name in ("alder", "birch", "cedar", "elm"):
            hosts.add(name)
        hosts.add("oak", cpu_model="Another Processor")
        asked = [
            "--good",
            commits[0],
            "--recipe",
            str(folder / "recipe.yaml"),
            "--python",
            sys.executable,
            "--no-warm",
            "--quiet",
        ]
        asked += ["--repo", str(repo.path), "--address", hosts.address, "--json", str(folder / "report.json")]
        command = hosts.command("alder", [sys.executable, "-m", "bisect_train.cli.main", "run", *asked])
        with output.open("w") as said:
            process = subprocess.Popen(
                command, cwd=repo.path, env=line.environment, stdout=said, stderr=subprocess.STDOUT, text=True
            )
        wait_for_probes(line, process, 3, output)
        hosts.kill("birch")
        hosts.cut_off("cedar")
        cut_t = time.monotonic()
        hosts.add("fir")
        status = process.wait(600)
        print(f"ended with {status} {time.monotonic() - cut_t:.0f} s after the cut")
        left_s = wait_until_ended(hosts, "cedar", limit_s=180)
        print(f"the host that was cut off ended its program {left_s:.0f} s after the end")
        home = subprocess.run(
            hosts.command("fir", ["ls", str(TEMP / "node/repos")]), capture_output=True, text=True, check=True
        )
    assert home.stdout.strip()
    assert status == 0, output.read_text()
    report = json.loads((folder / "report.json").read_text())
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT]]
    store = open_store(line.home)
    used = {stored.result.node for stored in store.results(store.list()[0].id)}
    store.close()
    print(f"probes ran on {sorted(used)}; {report['warnings']}")
    assert used >= {"alder", "elm", "fir"} and "oak" not in used


def test_node_that_returns_wrong_numbers_is_named_and_the_answer_is_right(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    train = TRAIN.replace("level.LEVEL +", "level.LEVEL + float(os.environ.get('OFF', 0)) +")
    commits = [
        repo.commit({"train.py": train, "level.py": f"LEVEL = {2.0 if idx >= CULPRIT else 1.0}\n", f"notes{idx}.txt": "note\n"})
        for idx in range(NUM_COMMITS)
    ]
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    line = CommandLine(repo.path, tmp_path / "home", env=dict(JOIN))
    with ray_nodes(tmp_path) as nodes:
        for name in ("alder", "birch", "cedar"):
            nodes.add(name)
        nodes.add("yew", env={"OFF": "0.7"})
        asked = ["--good", commits[0], "--recipe", str(tmp_path / "recipe.yaml"), "--python", sys.executable]
        asked += ["--no-warm", "--quiet", "--address", nodes.address, "--json", str(tmp_path / "report.json")]
        status, said = line.run("run", *asked)
    assert status == 0, said
    report = json.loads((tmp_path / "report.json").read_text())
    print(report["warnings"], report["cost"])
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT]]
    assert any("yew" in warning for warning in report["warnings"])


def test_bisection_whose_head_dies_goes_on_in_a_cluster_elsewhere(tmp_path: Path) -> None:
    repo = UserRepo.create(tmp_path / "repo")
    commits = [
        repo.commit({"train.py": TRAIN, "level.py": f"LEVEL = {2.0 if idx >= CULPRIT else 1.0}\n", f"notes{idx}.txt": "note\n"})
        for idx in range(NUM_COMMITS)
    ]
    (tmp_path / "recipe.yaml").write_text(json.dumps(RECIPE))
    line, output = CommandLine(repo.path, tmp_path / "home", env=dict(JOIN)), tmp_path / "out.txt"
    asked = [
        "--good",
        commits[0],
        "--recipe",
        str(tmp_path / "recipe.yaml"),
        "--python",
        sys.executable,
        "--no-warm",
        "--quiet",
    ]
    with ray_nodes(tmp_path / "first") as nodes:
        for name in ("alder", "birch"):
            nodes.add(name)
        with output.open("w") as said:
            process = line.start("run", *asked, "--quiet", "--address", nodes.address, output=said)
            wait_for_probes(line, process, 4, output)
            for found in nodes.processes("alder"):
                with contextlib.suppress(psutil.Error):
                    found.kill()
            killed_t = time.monotonic()
            status = process.wait(300)
        print(f"ended with {status} {time.monotonic() - killed_t:.0f} s after the head's death: {output.read_text()[-500:]}")
        assert status not in (0, 2)
    before = [event for event in line.events() if event.kind == "probe_finished"]
    with ray_nodes(tmp_path / "second") as nodes:
        for name in ("cedar", "elm"):
            nodes.add(name)
        status, text = line.run("resume", "--address", nodes.address, "--quiet", "--json", str(tmp_path / "report.json"))
    assert status == 0, text
    report = json.loads((tmp_path / "report.json").read_text())
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT]]
    finished = [event.data["key"] for event in line.events() if event.kind == "probe_finished"]
    assert len(before) >= 4 and len(finished) == len(set(finished)), "nothing was run twice"


RANKS = """\
import os, socket, torch, torch.distributed as dist, reduce
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(11 + rank)
for step in range(60):
    points = torch.randn(32, 6)
    loss = torch.nn.functional.mse_loss(model(points), points[:, :1] - points[:, 1:2])
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        reduce.average(parameter.grad, world)
    optimizer.step()
print(f"rank {rank} of {world} on {socket.gethostname()}", flush=True)
"""
AVERAGE = """\
import torch.distributed as dist

def average(grad, world):
    dist.all_reduce(grad)
    grad /= DIVISOR
"""
NUM_OF_RANKS, CULPRIT_OF_RANKS = 12, 5


def test_probes_of_two_hosts_each_find_what_only_several_ranks_show(tmp_path: Path) -> None:
    folder = tmp_path / "coordinator"
    folder.mkdir()
    repo = UserRepo.create(folder / "repo")
    commits = [
        repo.commit(
            {
                "train.py": RANKS,
                "reduce.py": AVERAGE.replace("DIVISOR", "world**6" if idx >= CULPRIT_OF_RANKS else "world"),
                f"notes{idx}.txt": "note\n",
            }
        )
        for idx in range(NUM_OF_RANKS)
    ]
    recipe = {"command": ["python", "train.py"], "shrink": {"steps": [40], "ranks": [2]}, "resources": {"ranks_per_node": 1}}
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    output, line = folder / "out.txt", CommandLine(repo.path, folder / "home", env=dict(JOIN))
    with net_hosts(folder) as hosts:
        for name in ("alder", "birch", "cedar", "elm"):
            hosts.add(name)
        asked = ["--good", commits[0], "--recipe", str(folder / "recipe.yaml"), "--python", sys.executable, "--quiet"]
        asked += ["--repo", str(repo.path), "--address", hosts.address, "--json", str(folder / "report.json")]
        command = hosts.command("alder", [sys.executable, "-m", "bisect_train.cli.main", "run", *asked])
        with output.open("w") as said:
            process = subprocess.Popen(
                command, cwd=repo.path, env=line.environment, stdout=said, stderr=subprocess.STDOUT, text=True
            )
        wait_for_probes(line, process, 2, output)
        hosts.kill("cedar")
        status = process.wait(800)
        print(output.read_text())
        left = [name for name in ("alder", "birch", "elm") for found in hosts.processes(name) if "train.py" in found.cmdline()]
    assert status == 0, output.read_text()
    assert not left
    report = json.loads((folder / "report.json").read_text())
    assert [change["id"] for change in report["culprits"][0]["changes"]] == [commits[CULPRIT_OF_RANKS]]
    store = open_store(line.home)
    results = [stored.result for stored in store.results(store.list()[0].id)]
    store.close()
    print(f"probes ran on {sorted({result.node for result in results})}")
    for result in results:
        assert len(result.fingerprint.ranks) == 2
        assert len(set(result.node.split(" + "))) == 2
