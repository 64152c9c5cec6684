"""Stands in for a coordinator in tests of the service: it runs nothing, but holds the lock, stores events, stops as one does.

`python -m tests.support.fake_coordinator ID PLAN`: PLAN is JSON {events: how many probes it notes, pause_s: after each, die:
exit status with which it ends half-way, or -9 for a kill, tries: how often it does so}. It writes a line to `runs.txt` in the
home folder when it starts.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from bisect_train.cli.coordinator_pipes import piped
from bisect_train.store.contract import Store
from bisect_train.store.home import default_home, open_store


def main() -> int:
    """Run; return the exit status."""
    bisection_id, plan = sys.argv[1], json.loads(sys.argv[2])
    home = default_home()
    with (home / "runs.txt").open("a") as runs:
        runs.write(f"{bisection_id} {os.getpid()}\n")
    with piped() as (report, share):
        store = open_store(home)
        try:
            with store.lock(bisection_id):
                return work(store, bisection_id, plan, report=report, home=home, share=share)
        except KeyboardInterrupt:
            with store.lock(bisection_id):
                store.append(bisection_id, "interrupted", {})
            return 130
        finally:
            store.close()


def work(store: Store, bisection_id: str, plan: dict, *, report: object, home: Path, share: object) -> int:  # type: ignore[type-arg]
    """Note as many probes as are missing, then the end."""
    store.append(bisection_id, "started", {})
    num_runs = sum(line.startswith(bisection_id) for line in (home / "runs.txt").read_text().splitlines())
    done = sum(event.kind == "noted" for event in store.events(bisection_id))
    for idx in range(done, plan["events"]):
        key = f"{idx:016x}"
        report({"kind": "started", "key": key})  # type: ignore[operator]
        if idx == plan["events"] // 2 and "die" in plan and num_runs <= plan.get("tries", 99):
            print("bisect-train: error: it cannot go on", file=sys.stderr, flush=True)
            if plan["die"] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return int(plan["die"])
        if store.cancel_requested(bisection_id):
            store.append(bisection_id, "cancelled", {})
            return 130
        time.sleep(plan.get("pause_s", 0.0))
        store.append(bisection_id, "noted", {"key": key, "share": share.num})  # type: ignore[attr-defined]
        report({"kind": "gone", "key": key})  # type: ignore[operator]
    answer = {"status": "isolated", "summary": "found"}
    store.append(bisection_id, "finished", {"answer": answer, "exit_status": 0})
    return 0


if __name__ == "__main__":
    sys.exit(main())
