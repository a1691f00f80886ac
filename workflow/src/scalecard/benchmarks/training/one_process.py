"""Data parallelism by one process that submits to all devices: written by hand, and PyTorch's nn.DataParallel.

By hand every device has its share of the batch already. nn.DataParallel scatters the batch of the first device in each
step, copies the module to the others anew, and gathers their outputs on the first one.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from scalecard.hardware.devices import Device
from scalecard.measuring.case_variant import Subject
from scalecard.measuring.counting import count, flops
from scalecard.measuring.proof import Change, Trained, same_replicas, training
from scalecard.parallel.step import Step, state_of
from scalecard.parallel.uneven_data_parallel import UnevenDataParallel
from scalecard.workloads.workload import HOST, Workload

ON_CPU = "nn.DataParallel is a silent no-op on a CPU: it would time the single device again"
Batch = tuple[Tensor, Tensor]
Wanted = Callable[[], Trained | Change]


def written_by_hand(
    where: str,
    workload: Workload,
    devices: Sequence[Device],
    shares: Sequence[int],
    batch: Batch,
    wanted: Wanted,
    *,
    steps: int,
    times: Sequence[int] = (),
) -> Subject:
    """A step over a batch of which each device has a share; `wanted` is what `steps` of them must make of the model.

    A device computes its gradients so many `times`: once, unless it is to be slower.
    """
    each_times = times or (1,) * len(shares)
    trained = UnevenDataParallel(workload.network, devices, shares, batch, lr=workload.lr, times=each_times)
    replicas = [[*replica.network.parameters(), *replica.network.buffers()] for replica in trained.replicas]
    used = [(share, each) for share, each in zip(shares, each_times, strict=True) if share]
    (last_share, last_times), (_, sample) = used[-1], workload.without_data()
    size = sum(parameter.nbytes for parameter in workload.network(HOST, on_meta=True).parameters())
    return training(
        where,
        trained.step,
        lambda: [tensor for replica in replicas for tensor in replica],
        wanted,
        times=steps,
        devices=devices,
        counts={
            "FLOPs": flops(sample) * sum(map(math.prod, used)),
            "updates": 1,
            "forwards": last_times,
            "samples": last_times * last_share,
            "received bytes": 2 * (len(used) - 1) * size,
        },
        module=trained.replicas[-1].network,
        compared=lambda: replicas[-1],
        after=lambda: [same_replicas([replica.parameters for replica in trained.replicas])],
    )


def nn_data_parallel(
    where: str, workload: Workload, devices: Sequence[Device], batch: Batch, wanted: Wanted, *, steps: int
) -> Subject:
    """A step over a batch on the first of these GPUs, which divide it equally.

    Its threads are not seen, so their operations are not counted.
    """
    module = workload.network(devices[0].torch)
    wrapped = data_parallel(module, [device.torch for device in devices])
    step = Step.of(workload, wrapped, batch)
    return training(
        where,
        partial(devices[0].submit, step),
        partial(state_of, module),
        wanted,
        times=steps,
        devices=devices,
        counts={"updates": 1, "forwards": 1, "samples": len(batch[1]), "replicas": len(devices)},
        module=wrapped,
    )


def data_parallel(module: nn.Module, devices: Sequence[torch.device | int]) -> nn.Module:
    """nn.DataParallel around the module; counted are the replicas that go forward, one on each device with samples."""
    module.register_forward_pre_hook(lambda *_: count("replicas", 1))
    return nn.DataParallel(module, device_ids=list(devices))
