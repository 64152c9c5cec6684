"""Hosts of a Ray cluster on one machine: each with a network, a host name and a temporary folder of its own (needs root).

A host is a network namespace on a bridge. In its mount namespace the folder in which Ray and bisect-train write is a file
system of its own, and what the coordinator's host has is hidden, so hosts share nothing but programs that they only read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.ray_nodes import JOIN

TEMP = Path("/tmp/bt-net")
"""Mount point of each host's own file system; short, since sockets lie in it."""
PORT = 6379


def can_have_hosts() -> bool:
    """Return whether this machine lets this user make network namespaces."""
    tools = all(map(shutil.which, ("ip", "unshare", "nsenter", "hostname")))
    return tools and os.geteuid() == 0 and subprocess.run(["unshare", "--net", "--mount", "true"], check=False).returncode == 0


def _ip(*args: str, check: bool = True) -> str:
    done = subprocess.run(["ip", *args], check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise AssertionError(f"ip {' '.join(args)}: {done.stderr}")
    return done.stdout


@dataclass
class Hosts:
    """Hosts by name; the first one added runs Ray's head.

    Attributes:
        folder: for logs, and hidden from all hosts but the first.
        mark: makes names of this cluster's devices differ from those of others.
    """

    folder: Path
    mark: str = field(default_factory=lambda: f"{os.getpid() % 10000:04d}")
    names: list[str] = field(default_factory=list)
    _started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where to join."""
        return f"{self._address(self.names[0])}:{PORT}"

    def add(self, name: str, *, cpus: int = 1, env: Mapping[str, str] | None = None, cpu_model: str = "") -> None:
        """Make a host and start Ray there; `cpu_model` is what it says its processor is."""
        if not self.names:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("link", "set", self._bridge, "up")
            TEMP.mkdir(exist_ok=True)
        self.names.append(name)
        space = self._space(name)
        _ip("netns", "add", space)
        _ip("link", "add", self._port(name), "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", self._port(name), "master", self._bridge, "up")
        _ip("-n", space, "address", "add", f"{self._address(name)}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")
        self._start(name, cpus, env or {}, cpu_model)
        self._wait_for(name)

    def command(self, name: str, args: Sequence[str]) -> list[str]:
        """Return the command that runs something on a host as a person there would."""
        return ["nsenter", f"--target={self.processes(name)[0].pid}", "--mount", "--net", "--uts", "--", *args]

    def cut_off(self, name: str) -> None:
        """Pull a host's network cable."""
        _ip("link", "set", self._port(name), "down")

    def kill(self, name: str) -> None:
        """Kill all processes of a host at once."""
        while processes := self.processes(name):
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.1)

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the living processes of a host, the oldest first."""
        found = []
        for pid in _ip("netns", "pids", self._space(name), check=False).split():
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(int(pid))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return sorted(found, key=lambda process: (process.create_time(), process.pid))

    def close(self) -> None:
        """End all hosts."""
        for name in self.names:
            self.kill(name)
            if name in self._started:
                self._started[name].wait()
            _ip("link", "del", self._port(name), check=False)  # sockets that nobody answers keep the rest for minutes
            _ip("netns", "del", self._space(name), check=False)
        _ip("link", "del", self._bridge, check=False)
        with contextlib.suppress(OSError):
            TEMP.rmdir()

    @property
    def _bridge(self) -> str:
        return f"btbr{self.mark}"

    def _space(self, name: str) -> str:
        return f"bt{self.mark}-{name}"

    def _port(self, name: str) -> str:
        return f"bt{self.mark}v{self.names.index(name)}"

    def _address(self, name: str) -> str:
        return f"10.77.0.{self.names.index(name) + 1}"

    def _start(self, name: str, cpus: int, env: Mapping[str, str], cpu_model: str) -> None:
        is_head = name == self.names[0]
        head = ["--head", f"--port={PORT}", f"--temp-dir={TEMP}", "--include-dashboard=false"]
        where = head if is_head else [f"--address={self.address}"]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, f"--node-ip-address={self._address(name)}"]
        ray += [f"--num-cpus={cpus}", "--object-store-memory=80000000", "--block"]
        steps = [f"hostname {name}", f"mount -t tmpfs -o size=2g tmpfs {TEMP}"]
        if not is_head:
            steps.append(f"mount -t tmpfs tmpfs {self.folder}")
        if cpu_model:
            other = Path(f"{self.folder}-{name}-cpuinfo")
            real = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            kept = [f"model name\t: {cpu_model}" if line.startswith("model name") else line for line in real]
            other.write_text("\n".join(kept) + "\n", encoding="utf-8")
            steps.append(f"mount --bind {other} /proc/cpuinfo")
        script = " && ".join([*steps, 'exec "$@"'])
        arguments = ["ip", "netns", "exec", self._space(name), "unshare", "--mount", "--uts", "sh", "-c", script, "sh", *ray]
        own = {**JOIN, "BISECT_TRAIN_NODE_HOME": str(TEMP / "node"), **env}
        with Path(f"{self.folder}-{name}.log").open("w") as log:
            env = {**os.environ, **own}
            self._started[name] = subprocess.Popen(arguments, env=env, stdout=log, stderr=log, start_new_session=True)

    def _wait_for(self, name: str) -> None:
        log, deadline = Path(f"{self.folder}-{name}.log"), time.monotonic() + 120
        while "Ray runtime started" not in log.read_text():
            assert time.monotonic() < deadline and self._started[name].poll() is None, log.read_text()
            time.sleep(0.2)


@contextlib.contextmanager
def net_hosts(folder: Path) -> Iterator[Hosts]:
    """Give a cluster without hosts, and end whatever was added."""
    hosts = Hosts(folder)
    try:
        yield hosts
    finally:
        hosts.close()
