"""Epochs of a module: what is taken over from a net that was trained before, and what is not."""

import torch
from scalecard.benchmarks.training.epochs import Epoch, concise_epoch
from scalecard.hardware.devices import open_devices
from scalecard.hardware.machine import Machine
from scalecard.workloads import datasets
from scalecard.workloads.workload import HOST, built_in


def test_the_second_run_keeps_biases_and_normalisations_and_draws_weights_anew(machine: Machine) -> None:
    workload = built_in("resnet18_printed", seed=0, lr=0.1, batch_size=4, share=8)
    fresh = workload.network(HOST)
    begun = [torch.full_like(tensor, 3) for tensor in (*fresh.parameters(), *fresh.buffers())]
    images = datasets.synthetic(num_train=8, num_test=4)
    names = [name for name, _ in (*fresh.named_parameters(), *fresh.named_buffers())]
    drawn = {name for name, tensor in fresh.named_parameters() if tensor.dim() > 1}
    assert len(drawn) == 1 + 8 * 2 + 3 + 1, "of the stem, of eight blocks, of three shortcuts, of the head"
    with open_devices(machine, 1) as (device,):
        timed = concise_epoch(device, images, True, Epoch(workload, 1), begun=begun)
        proven = concise_epoch(device, images, True, Epoch(workload, 1, 8), begun=begun)
    initial = [*fresh.parameters(), *fresh.buffers()]
    for name, one, own, small in zip(names, initial, timed.state(), proven.state(), strict=True):
        assert torch.equal(own, one if name in drawn else torch.full_like(one, 3)), name
        assert torch.equal(small, one), "what is proven begins as the plain loop does"
