"""Run one pickled job as a worker would, in a process that a test can kill: argv is job file, node home, recorder."""

import pickle
import sys
from pathlib import Path

from bisect_train_workers.node import NodeHome
from bisect_train_workers.probe_task import run_probe
from bisect_train_workers.program import Coordinator
from bisect_train_workers.workplaces import TaskContext


def main() -> None:
    job, coordinator = pickle.loads(Path(sys.argv[1]).read_bytes())
    packs = {pack.id: pack.data for pack in job.packs}
    who = Coordinator(*coordinator) if coordinator else None
    context = TaskContext(NodeHome(Path(sys.argv[2])), tuple(packs), packs.__getitem__, who, Path(sys.argv[3]))
    for event in run_probe(job, context):
        print(event, flush=True)


if __name__ == "__main__":
    main()
