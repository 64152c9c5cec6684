"""Case 11: a small effect, seeds that change on the way, and a machine on which one program in seven dies.

The effect is one and a half to two times the spread over seeds: how many fresh runs the proof gets decides whether it can be
told for sure. With 40 seeds it can, in some 460 probes; with 24 most runs end as candidates, the culprit first. Six commits
change the seed of the runs, so no run can be compared bit by bit with an end, and the seed that holds in the middle of the
range makes a healthy run look sick on the first look (seed 25: 2.67, where 2.59 is healthy and 2.65 sick, spread 0.03; one
after the culprit, seed 35, makes a sick run look healthy).
The reports: tenstorrent/tt-metal#49266, #57370, MikkoParkkola/mcp-gateway#615.
"""

from __future__ import annotations

from bisect_train.demo.history.steps import Replace, Role, Step
from tests.scenarios.library.ordinary import weave
from tests.scenarios.library.program import CONFIG_YAML
from tests.scenarios.library.scenario import Scenario, Truth

UNSTABLE_NODE = '''\
"""Runs a training program on a machine that resets now and then: status 137, or it hangs."""

import os
import random
import runpy
import sys
import threading
import time

dice = random.SystemRandom()
fate = dice.random()
if fate < 0.12:
    timer = threading.Timer(dice.uniform(0.2, 2.0), os._exit, (137,))
    timer.daemon = True
    timer.start()
elif fate < 0.15:
    time.sleep(3600)
sys.argv = sys.argv[1:]
sys.path[0] = os.getcwd()
runpy.run_path(sys.argv[0], run_name="__main__")
'''
DEATH_SHARE = 0.15


def _reseed(old: int, new: int) -> Step:
    subject = f"config: seed {new} for the next round"
    return Step(subject, (Replace("config.yaml", f"seed: {old}\n", f"seed: {new}\n"),), role=Role.DECOY)


SLOWER_RATE = Step(
    "optimizer: a little more careful",
    (Replace("train.py", '        lr=settings["lr"],\n', '        lr=settings["lr"] / 1.25,\n'),),
    role=Role.CULPRIT,
)

NOISE_AND_DEATHS = Scenario(
    "case11_noise_and_deaths",
    weave(
        {
            4: _reseed(11, 31),
            8: _reseed(31, 25),
            11: _reseed(25, 41),
            12: SLOWER_RATE,
            13: _reseed(41, 35),
            15: _reseed(35, 37),
            17: _reseed(37, 20),
        },
        num=18,
    ),
    Truth("isolated", 0, ((SLOWER_RATE,),), kind_of_change="worse", effect=(0.03, 0.08)),
    base={"config.yaml": CONFIG_YAML.replace("  lines: 64\n", "  lines: 16\n")},
    options=("--seeds", "40", "--timeout", "40"),
    files={"unstable_node.py": UNSTABLE_NODE},
    command=("python", "{files}/unstable_node.py", "train.py", "--config", "config.yaml"),
    death_share=DEATH_SHARE,
)
