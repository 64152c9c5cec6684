"""What a program imports in the place of torch: `step(loss)` is one optimizer step."""

import time

import _fake_session

_session = _fake_session.session
if _session is not None:
    _session.event("torch_imported", version="fake", threads=1)


def step(loss, **more):
    if _session is None:
        return
    wanted = _session.settings["steps"]
    if wanted is not None and _session.num_steps >= wanted:
        if _session.settings.get("hold"):
            _session.event("stop", how="hold")
            while True:
                time.sleep(60.0)
        _session.event("stop", how="SystemExit")
        raise SystemExit(0)
    line = {"type": "step", "step": _session.num_steps, "t": time.time(), "loss": loss, "micro": [loss], "lr": [0.1]}
    _session.write(**line, provisional=True)
    _session.write(**line, **more)
    _session.num_steps += 1


def event(name, **data):
    _session.event(name, **data)
