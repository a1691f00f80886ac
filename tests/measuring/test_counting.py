"""Work is counted below our code: in this thread, in CPU workers and in autograd."""

import pytest
import torch
from scalecard.hardware.devices import keep_until_copied, open_devices
from scalecard.hardware.machine import Machine
from scalecard.measuring.case_variant import Subject, Work
from scalecard.measuring.counting import counted, counting, flops
from torch import nn


def counts(work: Work, **more: object) -> dict[str, float]:
    names = ("FLOPs", "updates", "forwards", "samples", "copied bytes", "received bytes", "test FLOPs")
    subject = Subject(work=work, prove=tuple, expected=dict.fromkeys(names, 0), **more)  # type: ignore[arg-type]
    return {count.name: count.counted for count in counted(subject, lambda: None)}


def test_a_product_is_two_n_cubed_wherever_it_runs(machine: Machine) -> None:
    x = torch.ones(10, 10)
    assert flops(lambda: x @ x) == 2 * 10**3
    with open_devices(machine, 2) as devices, counting() as tally:
        for device in devices:
            device.submit(torch.mm, x, x)
        for device in devices:
            device.synchronize()
    assert tally.sums()["FLOPs"] == 2 * 2 * 10**3


def test_every_operator_is_made_before_threads_count_it() -> None:
    """Else two threads that meet one at once, as the all-reduces of two devices, make it twice: one is freed in use."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith(("aten::", "c10d::"))]
    assert len(names) > 1000
    for name in names:
        space, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        assert (overload or "default") in vars(getattr(getattr(torch.ops, space), operator)), name


def test_a_linear_layers_step_is_counted_forward_and_backward() -> None:
    """Outputs (5, 7) of inputs (5, 3): 2 * 5 * 3 * 7 forward and as much for the weights' gradient."""
    layer, inputs = nn.Linear(3, 7), torch.ones(5, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> None:
        layer(inputs).sum().backward()
        optimizer.step()

    seen = counts(step, state=lambda: list(layer.parameters()), module=layer)
    assert seen["FLOPs"] == 2 * (2 * 5 * 3 * 7)
    assert (seen["updates"], seen["forwards"], seen["samples"]) == (1, 1, 5)


def test_a_step_that_updates_only_some_parameters_has_no_number_of_updates() -> None:
    one, other = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)

    @torch.no_grad()
    def work() -> None:
        one.add_(1)

    assert counts(work, state=lambda: [one, other])["updates"] == -1


def test_the_bytes_of_parameters_are_those_that_a_call_changes() -> None:
    one, other = (torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, 5))

    @torch.no_grad()
    def work() -> None:
        one.add_(1)

    assert _parameter_bytes(work, one) == 3 * 8
    assert _parameter_bytes(work, one, other) == 3 * 8, "the other one is not changed"


def _parameter_bytes(work: Work, *parameters: torch.Tensor) -> float:
    subject = Subject(work=work, prove=tuple, expected={"parameter bytes": 0}, state=lambda: parameters)
    (count,) = counted(subject, lambda: None)
    return count.counted


def test_copies_and_what_devices_receive_are_counted_in_bytes(machine: Machine) -> None:
    x = torch.ones(100)
    assert counts(lambda: x.to("cpu", copy=True))["copied bytes"] == 400
    with open_devices(machine, 2) as devices, counting() as tally:
        devices[0].call(keep_until_copied, x)
        devices[1].call(keep_until_copied, x[:10])
    assert tally.sums()["received bytes"] == 440
    assert tally.sums()["received by the busiest device"] == 400


def test_where_nothing_is_received_there_are_no_bytes() -> None:
    with counting() as tally:
        torch.ones(3).sum()
    assert (tally.sums()["received bytes"], tally.sums()["received by the busiest device"]) == (0, 0)


def test_scoring_the_test_images_is_counted_apart() -> None:
    x = torch.ones(10, 10)

    def score() -> float:
        return float((x @ x @ x).sum())

    seen = counts(lambda: x @ x, test=score)
    assert (seen["FLOPs"], seen["test FLOPs"]) == (2000, 4000)


def test_counting_ends() -> None:
    x = torch.ones(10, 10)
    with counting() as tally:
        pass
    x @ x
    assert tally.sums().get("FLOPs", 0) == 0


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_counting_ends_after_an_error(error: type[BaseException]) -> None:
    x = torch.ones(10, 10)
    with pytest.raises(error), counting():
        raise error
    with counting() as tally:
        pass
    x @ x
    assert tally.sums().get("FLOPs", 0) == 0


def test_operations_and_bytes_are_recorded_with_their_unit() -> None:
    x = torch.ones(10, 10)
    names = {"FLOPs": "FLOP", "copied bytes": "B", "received by the busiest device": "B", "forwards": ""}
    subject = Subject(work=lambda: x @ x, prove=tuple, expected=dict.fromkeys(names, 0.0))
    assert {count.name: count.unit for count in counted(subject, lambda: None)} == names


def test_waiting_for_a_device_is_counted_within_the_call_alone(machine: Machine) -> None:
    with open_devices(machine, 2) as devices:

        def work() -> None:
            for device in (devices[0], devices[1], devices[0]):
                device.synchronize()

        subject = Subject(work=work, prove=tuple, expected={"synchronisations": 3})
        (count,) = counted(subject, devices[0].synchronize)
        work()
    assert (count.counted, count.unit) == (3, "")
