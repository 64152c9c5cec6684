"""The script that `git bisect run` and git-bayesect call: it trains in the current folder and judges by the last metric.

argv[1] is a JSON file: command, env, pattern (a regular expression whose last match is the metric), threshold (bad above it,
or below it where `sign` is -1), runs (a file that gets a line a run). Where the program ends otherwise than with 0 the status
is 125, git's word for untestable.
Standard library only.
"""

import json
import os
import re
import subprocess
import sys


def main() -> int:
    """Return 0 for good, 1 for bad, 125 for neither."""
    with open(sys.argv[1], encoding="utf-8") as file:
        told = json.load(file)
    done = subprocess.run(told["command"], env={**os.environ, **told["env"]}, capture_output=True, text=True)
    found = re.findall(told["pattern"], done.stdout)
    with open(told["runs"], "a", encoding="utf-8") as file:
        file.write(f"{found[-1] if found else 'nothing'}\n")
    if done.returncode != 0 or not found:
        return 125
    return int(told["sign"] * (float(found[-1]) - told["threshold"]) > 0.0)


if __name__ == "__main__":
    sys.exit(main())
