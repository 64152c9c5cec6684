"""Every symptom that can be planted on a CPU, as a mistake in a program that is healthy without it.

`memory_full` needs a GPU. `no_resources` is not a mistake in a program: a probe asks for more than the machine has (see
test_triage_faults).
"""

from __future__ import annotations

from bisect_train.core.probe import RestartSettings
from bisect_train.verdict.divergence import Stage
from bisect_train.verdict.triage import Category
from tests.scenarios.triage.running import Fault

HANG_LIMIT_S = 40.0
_BACKWARD = "    loss.backward()\n    optimizer.step()\n"
_REDUCE = "        dist.all_reduce(parameter.grad)\n        parameter.grad /= world\n"
_LOOP_BY_HAND = "for step in range(24):\n    points = torch.randn(32, 6)\n"
_RESUME = RestartSettings(19, ("python", "train.py", "--resume"))

WONT_START = (
    Fault(
        "import_error",
        "a name in a module of the repository is renamed, an import is not",
        "with_helper",
        (("from helper import WIDTH\n", "from helper import HIDDEN as WIDTH\n"),),
    ),
    Fault(
        "config_error",
        "the code reads a key that the settings do not have",
        "with_helper",
        (('lr=settings["lr"]', 'lr=settings["learning_rate"]'),),
    ),
    Fault(
        "imported_from_outside",
        "the folder of the user's own checkout comes first on the path",
        "with_helper",
        (
            (
                "import torch\nfrom helper import WIDTH\n",
                'import sys\n\nimport torch\n\nsys.path.insert(0, "/elsewhere")\nfrom helper import WIDTH\n',
            ),
        ),
    ),
    Fault(
        "environment_mismatch",
        "a GPU is asked for, and torch is built without",
        "with_helper",
        (('torch.device("cpu")', 'torch.device("cuda")'),),
    ),
    Fault(
        "checkpoint_does_not_fit",
        "the model that goes on is wider than the one that was saved",
        "save_and_load",
        (
            (
                "        model, optimizer = start()\n        state",
                "        model, optimizer = start(48)\n        state",
            ),
            (
                "def start():\n    model = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, 3))\n",
                "def start(width=32):\n    model = nn.Sequential(nn.Linear(9, width), nn.ReLU(), nn.Linear(width, 3))\n",
            ),
            ("for step in range(60):\n    if step == 30:\n", "for step in range(60):\n    if step == 0:\n"),
        ),
    ),
    Fault(
        "checkpoint_does_not_fit",
        "names changed since the save, and loading is not strict",
        "save_and_load",
        (
            (
                '        model.load_state_dict(state["model"])\n',
                '        renamed = {f"model.{key}": value for key, value in state["model"].items()}\n'
                "        model.load_state_dict(renamed, strict=False)\n",
            ),
        ),
    ),
    Fault(
        "missing_rank",
        "two processes are started, three are waited for",
        "averaged_by_hand",
        (
            (
                'world = int(os.environ["WORLD_SIZE"])\n',
                'world = 3\nos.environ["WORLD_SIZE"] = "3"\n',
            ),
        ),
        ranks=(2,),
        also=frozenset({"hang_in_init"}),
        timeout_s=HANG_LIMIT_S,
    ),
    Fault(
        "hang_in_init",
        "rank 1 waits for a file that nobody writes before it joins",
        "averaged_by_hand",
        (
            (
                'dist.init_process_group("gloo")\n',
                "import time\n\nwhile rank == 1 and not os.path.exists('data.ready'):\n    time.sleep(0.1)\n"
                'dist.init_process_group("gloo")\n',
            ),
        ),
        timeout_s=HANG_LIMIT_S,
    ),
    Fault(
        "hang_in_first_collective",
        "the weights are broadcast by rank 0 only",
        "averaged_by_hand",
        (
            (
                "for parameter in model.parameters():\n    dist.broadcast(parameter.data, 0)\n",
                "if rank == 0:\n    for parameter in model.parameters():\n        dist.broadcast(parameter.data, 0)\n"
                "    dist.barrier()\n",
            ),
        ),
        also=frozenset({"collectives_differ"}),
        timeout_s=HANG_LIMIT_S,
    ),
)

STOPPED = (
    Fault(
        "crash",
        "the last batch is of another shape",
        "mlp",
        (("    inputs = torch.randn(64, 8)\n", "    inputs = torch.randn(64, 8 if step < 30 else 7)\n"),),
        step=30,
    ),
    Fault(
        "killed",
        "a signal comes from outside",
        "mlp",
        ((_BACKWARD, f"{_BACKWARD}    if step == 30:\n        import os\n\n        os.kill(os.getpid(), 9)\n"),),
        step=31,
    ),
    Fault(
        "out_of_memory",
        "all pairs of pairs of a batch are held at once",
        "mlp",
        (
            (
                "    targets = torch.sin(inputs @ mix).unsqueeze(1)\n",
                "    targets = torch.sin(inputs @ mix).unsqueeze(1)\n"
                "    if step == 30:\n        pairs = torch.zeros(64**4, 64**4)\n",
            ),
        ),
        step=30,
    ),
    Fault(
        "hang",
        "rank 1 leaves out the reductions of one step",
        "averaged_by_hand",
        ((_REDUCE, f"        if rank == 1 and step == 10:\n            continue\n{_REDUCE}"),),
        step=10,
        also=frozenset({"collectives_differ"}),
        timeout_s=HANG_LIMIT_S,
    ),
    Fault(
        "hang_at_end",
        "rank 0 leaves out the last barrier and waits for a message of rank 1",
        "ddp_sampler",
        (
            (
                "    dist.barrier()\n",
                "    if rank == 1 or epoch == 0:\n        dist.barrier()\nif rank == 0:\n    dist.recv(torch.zeros(1), 1)\n",
            ),
        ),
        needs_baseline=True,
        timeout_s=HANG_LIMIT_S,
    ),
    Fault(
        "slow_not_hung",
        "every step waits for a second",
        "mlp",
        ((_BACKWARD, f"{_BACKWARD}    import time\n\n    time.sleep(1.0)\n"),),
        timeout_s=25.0,
    ),
    Fault(
        "rank_died",
        "rank 1 is killed",
        "averaged_by_hand",
        (
            (
                _LOOP_BY_HAND,
                f"{_LOOP_BY_HAND}    if rank == 1 and step == 10:\n        os.kill(os.getpid(), 9)\n",
            ),
        ),
        ranks=(1,),
        step=10,
        also=frozenset({"killed"}),
    ),
)

WONT_CONVERGE = (
    Fault(
        "nan_loss",
        "a logarithm of a number that may be 0",
        "mlp",
        (
            (
                "    loss = nn.functional.mse_loss(model(inputs), targets)\n",
                "    outputs = model(inputs)\n    loss = nn.functional.mse_loss(outputs, targets)\n"
                "    if step >= 30:\n        loss = loss + (outputs - outputs).sum().log() * 0.0\n",
            ),
        ),
        step=30,
        also=frozenset({"nan_gradient", "nan_parameter"}),
    ),
    Fault(
        "nan_gradient",
        "a root at 0: the loss is finite, its derivative is not",
        "mlp",
        (
            (
                "    loss = nn.functional.mse_loss(model(inputs), targets)\n",
                "    outputs = model(inputs)\n    loss = nn.functional.mse_loss(outputs, targets)\n"
                "    if step >= 30:\n        loss = loss + (outputs - outputs.detach()).square().sum().sqrt()\n",
            ),
        ),
        step=30,
        also=frozenset({"nan_parameter", "nan_loss"}),
    ),
    Fault(
        "nan_parameter",
        "Adam without its epsilon, and a weight whose gradient is 0",
        "mlp",
        (
            (
                "lr=1e-2)\n",
                "lr=1e-2, eps=0.0)\nspare = nn.Linear(1, 1)\noptimizer.add_param_group({'params': spare.parameters()})\n",
            ),
            (
                "    loss = nn.functional.mse_loss(model(inputs), targets)\n",
                "    loss = nn.functional.mse_loss(model(inputs), targets) + 0.0 * spare(torch.zeros(1, 1)).sum().detach()\n"
                "    loss = loss + (spare.weight * 0.0).sum() + (spare.bias * 0.0).sum()\n",
            ),
        ),
        also=frozenset({"nan_loss"}),
    ),
    Fault(
        "exploding_gradient",
        "from step 30 on plain gradient descent takes over, with a rate of 30",
        "mlp",
        (
            ("lr=1e-2)\n", "lr=1e-2)\nwild = torch.optim.SGD(model.parameters(), lr=30.0)\n"),
            ("    optimizer.step()\n", "    (wild if step >= 30 else optimizer).step()\n"),
            (
                "nn.functional.mse_loss(model(inputs), targets)",
                "nn.functional.mse_loss(model(inputs).square() * 4.0 - 1.0, targets)",
            ),
        ),
        also=frozenset({"lr_jumps", "nan_loss", "nan_gradient", "nan_parameter"}),
    ),
    Fault(
        "vanishing_gradient",
        "the loss is divided by the size of the batch over and over",
        "mlp",
        (("nn.functional.mse_loss(model(inputs), targets)", "nn.functional.mse_loss(model(inputs), targets) / 64**4"),),
    ),
    Fault(
        "lr_stalls",
        "the scheduler is not called any more",
        "warmup_cosine",
        (("    schedule.step()\n", ""),),
        needs_baseline=True,
        also=frozenset({"plateau"}),
    ),
    Fault(
        "lr_stalls",
        "the warm-up counts epochs, and there is one",
        "char_lm",
        (('        group["lr"] = rate_at(step)\n', '        group["lr"] = rate_at(step // 100)\n'),),
    ),
    Fault(
        "lr_jumps",
        "after the warm-up the rate is multiplied by the number of steps of the warm-up twice",
        "char_lm",
        (("    done = (step", "    if step >= 40:\n        return PEAK * WARMUP * WARMUP\n    done = (step"),),
        step=40,
    ),
    Fault(
        "lr_differs",
        "the warm-up is twice as long",
        "char_lm",
        (("WARMUP, STEPS, PEAK = 8,", "WARMUP, STEPS, PEAK = 16,"),),
        needs_baseline=True,
        step=1,
    ),
    Fault(
        "plateau",
        "inputs and labels are shifted against each other",
        "frozen_backbone",
        (
            (
                "    loss = nn.functional.cross_entropy(model(inputs), labels)\n",
                "    loss = nn.functional.cross_entropy(model(inputs), labels.roll(1))\n",
            ),
        ),
        needs_baseline=True,
    ),
    Fault(
        "frozen_parameters",
        "the optimizer is given the parameters of the last layers only",
        "mlp",
        (("torch.optim.Adam(model.parameters()", "torch.optim.Adam(model[2:].parameters()"),),
    ),
    Fault(
        "disconnected_parameters",
        "the output of the first layer is detached",
        "mlp",
        (
            (
                "    loss = nn.functional.mse_loss(model(inputs), targets)\n",
                "    loss = nn.functional.mse_loss(model[1:](model[0](inputs).detach()), targets)\n",
            ),
        ),
    ),
    Fault(
        "lost_updates",
        "weights in bfloat16 with a rate that is too small for them",
        "bf16_weights",
        (("lr=0.2)", "lr=2e-5)"),),
    ),
    Fault(
        "loss_spikes",
        "every so often the inputs are eight times as large",
        "ema",
        (
            (
                "    inputs = torch.randn(32, 8)\n    loss",
                "    inputs = torch.randn(32, 8) * (8.0 if step % 15 == 14 else 1.0)\n    loss",
            ),
        ),
        needs_baseline=True,
        also=frozenset({"data_changed"}),
    ),
    Fault(
        "bad_evaluation",
        "the evaluation is of another kind of data",
        "ema",
        (("torch.tanh(inputs @ mix))\n        print", "torch.tanh(inputs @ -mix))\n        print"),),
        needs_baseline=True,
    ),
    Fault(
        "data_changed",
        "the text loses its capital letters",
        "char_lm",
        (("for name in sorted(topics))[:60000]", "for name in sorted(topics))[:60000].lower()"),),
        needs_baseline=True,
        step=0,
    ),
    Fault(
        "too_good",
        "the answer is given in place of the network's output",
        "distillation",
        (
            (
                "student = nn.Sequential(nn.Linear(10, 24)",
                "student = nn.Sequential(nn.Linear(16, 24)",
            ),
            (
                "F.log_softmax(student(inputs), dim=1)",
                "F.log_softmax(student(torch.cat([inputs, 20.0 * wanted.log()], 1)) * 0.0 + wanted.log(), dim=1)",
            ),
        ),
        needs_baseline=True,
        also=frozenset({"data_changed", "vanishing_gradient", "disconnected_parameters", "plateau"}),
    ),
    Fault(
        "too_smooth",
        "every step takes the first batch again",
        "diffusion",
        (("for step in range(80):\n", "for step in range(80):\n    torch.manual_seed(31)\n"),),
        needs_baseline=True,
        also=frozenset({"data_changed"}),
    ),
)

SILENT_DISTRIBUTED = (
    Fault(
        "same_data",
        "every rank takes the same share",
        "ddp",
        (("[rank::world]\n", "[::world]\n"),),
    ),
    Fault(
        "overlapping_samples",
        "each rank shuffles with a seed of its own",
        "ddp_sampler",
        (
            (
                "sampler = DistributedSampler(TensorDataset(points, labels), seed=33)",
                "sampler = DistributedSampler(TensorDataset(points, labels), seed=33 + rank)",
            ),
        ),
        steps=12,
    ),
    Fault(
        "missing_samples",
        "each of two ranks takes every fourth sample, and fills its batch with them a second time",
        "ddp",
        (("[rank::world]\n", "[rank :: 2 * world].repeat(2, 1)\n"),),
        needs_baseline=True,
        also=frozenset({"data_changed"}),
    ),
    Fault(
        "precision_differs",
        "rank 1 computes in bfloat16",
        "averaged_by_hand",
        (
            (
                "    loss = nn.functional.mse_loss(model(points), points[:, :1] * points[:, 1:2])\n",
                '    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rank == 1):\n        outputs = model(points)\n'
                "    loss = nn.functional.mse_loss(outputs.float(), points[:, :1] * points[:, 1:2])\n",
            ),
        ),
        ranks=None,
    ),
    Fault(
        "initial_parameters_differ",
        "a seed for each rank, and no broadcast",
        "averaged_by_hand",
        (("    dist.broadcast(parameter.data, 0)\n", "    pass\n"),),  # that they differ afterwards, too, is no second fact
    ),
    Fault(
        "parameters_differ",
        "the gradient of the last layer is not averaged",
        "averaged_by_hand",
        (
            (
                "        dist.all_reduce(parameter.grad)\n",
                "        if parameter.numel() > 24:\n            dist.all_reduce(parameter.grad)\n",
            ),
        ),
        also=frozenset({"gradients_not_averaged"}),
    ),
    Fault(
        "gradients_averaged_twice",
        "the mean over the ranks is divided by their number again",
        "averaged_by_hand",
        (("        parameter.grad /= world\n", "        parameter.grad /= world * world\n"),),
        needs_baseline=True,
    ),
    Fault(
        "gradients_not_averaged",
        "gradients are summed over the ranks and not divided",
        "averaged_by_hand",
        (("        parameter.grad /= world\n", ""),),
        needs_baseline=True,
    ),
    Fault(
        "gradients_not_averaged",
        "each rank steps with its own gradient",
        "averaged_by_hand",
        ((_REDUCE, "        pass\n"),),
        also=frozenset({"parameters_differ"}),
    ),
    Fault(
        "collectives_differ",
        "rank 1 reduces the gradients in another order",
        "averaged_by_hand",
        (
            (
                "    for parameter in model.parameters():\n        dist.all_reduce",
                "    for parameter in sorted(model.parameters(), key=lambda item: item.numel() * (1 - rank)):\n"
                "        dist.all_reduce",
            ),
        ),
        perhaps=frozenset({"killed", "crash", "rank_died"}),  # gloo ends the rank to which too much is sent, the other fails
        category=Category.WONT_START,  # in the first step
        leads=True,
        timeout_s=60.0,
    ),
    Fault(
        "rank_skips_branch",
        "the penalty of the weights is added on rank 0 only",
        "averaged_by_hand",
        (
            (
                "    loss.backward()\n",
                "    loss.backward()\n    if rank == 0:\n        (0.01 * model[0].weight.square().sum()).backward()\n",
            ),
        ),
        needs_baseline=True,
    ),
    Fault(
        "stale_weights",
        "the resumed run loads the weights of the first save",
        "resumable",
        (
            (
                'Path("next.pt").replace("last.pt")',
                'Path("next.pt").replace("last.pt" if step == 9 else "later.pt")',
            ),
        ),
        settings={"restart": _RESUME},
        also=frozenset({"restart_differs"}),
    ),
    Fault(
        "restart_differs",
        "the state of the optimizer is not loaded",
        "resumable",
        (('    optimizer.load_state_dict(saved["optimizer"])\n', ""),),
        settings={"restart": _RESUME},
        step=20,
        stage=Stage.UPDATED_PARAMETERS,
    ),
)

SLOW = (
    Fault(
        "slower",
        "every step sorts a large list",
        "autoencoder",
        ((_BACKWARD, f"{_BACKWARD}    sorted(range(2_000_000), key=lambda item: -item)\n"),),
        needs_baseline=True,
        perhaps=frozenset({"more_memory"}),
    ),
    Fault(
        "data_loading",
        "samples are decoded while the step waits",
        "nested_batches",
        (("            yield {", "            sum(range(400_000))\n            yield {"),),
    ),
    Fault(
        "more_memory",
        "the outputs of all steps are kept",
        "autoencoder",
        (
            (
                "    optimizer.zero_grad()\n",
                "    optimizer.zero_grad()\n    kept.append(torch.ones(1 << 19) * loss.detach())\n",
            ),
            ("for step in range(80):\n", "kept = []\nfor step in range(80):\n"),
        ),
        needs_baseline=True,
        perhaps=frozenset({"slower"}),
    ),
)

FAULTS: tuple[Fault, ...] = (*WONT_START, *STOPPED, *WONT_CONVERGE, *SILENT_DISTRIBUTED, *SLOW)
