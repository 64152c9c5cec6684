"""The Ray that all bisections of a service share: the one that was named, or one of our own, started when first needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from bisect_train.core.errors import MachineError
from bisect_train.core.interpreters import module_command
from bisect_train.service.logs import log_path, open_log
from bisect_train.service.settings import Settings

KEEPER = "bisect_train_workers.ray_keeper"
START_S = 180.0
END_S = 45.0
_HINT = "`bisect-train doctor` looks at this machine"


@dataclass(frozen=True, slots=True)
class RayPlace:
    """Where Ray is, and the variables that a coordinator needs to join it."""

    address: str
    env: Mapping[str, str] = field(default_factory=dict)


class Cluster:
    """One Ray for all coordinators; used by one event loop.

    Args:
        settings: its address or its size, and the home folder.
        keeper: command that starts one and keeps it until its input ends; the tool's own unless given.
    """

    def __init__(self, settings: Settings, *, keeper: tuple[str, ...] = module_command(sys.executable, KEEPER)) -> None:
        self._settings = settings
        self._keeper = keeper
        self._guard = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._place: RayPlace | None = None
        self.problem = ""

    async def place(self) -> RayPlace:
        """Return where Ray is; start it where it does not run (any more).

        Raises:
            MachineError: it does not start.
        """
        if self._settings.address:
            return RayPlace(self._settings.address)
        async with self._guard:
            if self._place is None or self._process is None or self._process.returncode is not None:
                try:
                    self._place = await self._start()
                    self.problem = ""
                except MachineError as error:
                    self.problem = f"Ray does not start: {error.message}"
                    raise
            return self._place

    async def _start(self) -> RayPlace:
        home = self._settings.home
        arguments = ["--temp-folder", str(home / "ray"), "--node-home", str(home / "node")]
        arguments += ["--cpus", str(self._settings.cpus)] if self._settings.cpus else []
        with open_log(log_path(home, "ray")) as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._keeper,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), START_S)
            said = json.loads(line or b"{}")
        except (asyncio.TimeoutError, ValueError):
            said = {}
        if said.get("address"):
            return RayPlace(said["address"], {str(key): str(value) for key, value in said.get("env", {}).items()})
        await self.close()
        raise MachineError(said.get("error") or "it says nothing", hint=said.get("hint") or _HINT)

    async def close(self) -> None:
        """End a Ray of our own; can be called twice."""
        process, self._process, self._place = self._process, None, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), END_S)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
