"""A coordinator in its own process that runs one pickled job on a local Ray and prints what it sees; argv: job, node home."""

import pickle
import sys
from pathlib import Path

from bisect_train_workers.ray_executor import RayExecutor


def main() -> None:
    job = pickle.loads(Path(sys.argv[1]).read_bytes())
    executor = RayExecutor(job.settings, node_home=Path(sys.argv[2]))
    executor.submit(job)
    try:
        while True:
            for event in executor.wait(1.0):
                print(event, flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        for _ in range(4):
            for event in executor.wait(0.5):
                print(event, flush=True)
        executor.close()
        print("closed", flush=True)


if __name__ == "__main__":
    main()
