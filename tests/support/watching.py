"""Many watchers of a service at once, and what each of them saw."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

import httpx


@dataclass
class Watcher:
    """What one watcher saw: numbers of the events in order, how late each came (from when it was stored, or
    the stream began), seconds, and what the end said."""

    bisection_id: str
    seqs: list[int] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    ended: str = ""
    num_connections: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether every event was seen once and in order, to the end."""
        return self.ended == "finished" and self.seqs == list(range(1, len(self.seqs) + 1)) and len(self.seqs) > 0


async def watch(client: httpx.AsyncClient, watcher: Watcher, *, leave_after: int = 0) -> None:
    """Watch to the end; with `leave_after` break off after so many events, once, and come back with the last number."""
    while not watcher.ended:
        watcher.num_connections += 1
        headers = {"Last-Event-ID": str(watcher.seqs[-1])} if watcher.seqs else {}
        async with client.stream("GET", f"/api/v1/bisections/{watcher.bisection_id}/events", headers=headers) as answer:
            answer.raise_for_status()
            name, connected_s = "", time.time()
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: ") and not name:
                    data = json.loads(line[6:])
                    watcher.seqs.append(data["seq"])
                    watcher.delays_s.append(time.time() - max(connected_s, data["time_s"]))
                elif line.startswith("data: ") and name == "end":
                    watcher.ended = json.loads(line[6:])["status"]
                elif not line:
                    name = ""
                if leave_after and watcher.num_connections == 1 and len(watcher.seqs) >= leave_after:
                    break


async def watch_all(url: str, ids: list[str], *, num_watchers: int, leave_after: int = 0) -> list[Watcher]:
    """Let so many watchers watch, each one bisection in turn; every third leaves and comes back."""
    watchers = [Watcher(ids[idx % len(ids)]) for idx in range(num_watchers)]
    limits = httpx.Limits(max_connections=num_watchers + 10, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
        tasks = [watch(client, item, leave_after=0 if idx % 3 else leave_after) for idx, item in enumerate(watchers)]
        await asyncio.gather(*tasks)
    return watchers
