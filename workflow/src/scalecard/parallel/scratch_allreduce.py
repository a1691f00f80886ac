"""All-reduce between the devices of one process, from scratch: naive, and on a ring.

Each device holds one bucket, a list of tensors; afterwards every bucket holds the sum, in place. A bucket may be the
Task that computes it. No device continues before its neighbours have read what it would overwrite.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from scalecard.hardware.devices import Device, Task, keep_until_copied

Bucket = list[Tensor] | Task
AllReduce = Callable[[Sequence[Device], Sequence[Bucket]], None]


def naive(devices: Sequence[Device], buckets: Sequence[Bucket]) -> None:
    """Sum onto device 0, then copy the sum back to each: 2 (n - 1) S bytes through device 0's link.

    Source: Dive into Deep Learning, chapter "Training on Multiple GPUs".
    """
    if len(devices) == 1:
        return
    for bucket in buckets[1:]:
        total = devices[0].submit(_add, buckets[0], bucket)
    copies = [d.submit(_copy, b, buckets[0], total) for d, b in zip(devices[1:], buckets[1:], strict=True)]
    devices[0].after(*copies)


def ring(devices: Sequence[Device], buckets: Sequence[Bucket]) -> None:
    """Each device only ever receives from its left neighbour: 2 (n - 1)/n S bytes through each link.

    Every tensor is cut into n chunks. With n = 3, what device d receives, and then holds complete (*):

        step             device 0    device 1    device 2
        reduce-scatter 0   += c2       += c0       += c1
        reduce-scatter 1   += c1*      += c2*      += c0*
        all-gather 0        = c0        = c1        = c2
        all-gather 1        = c2        = c0        = c1

    Source: Patarasu and Yuan, Bandwidth optimal all-reduce algorithms (2009).
    """
    n = len(devices)
    if n == 1:
        return
    done = [device.after(bucket) for device, bucket in zip(devices, buckets, strict=True)]
    for step in range(2 * (n - 1)):
        receive = _add if step < n - 1 else _copy
        done = [
            device.submit(receive, buckets[i], buckets[i - 1], done[i - 1], (i - step - 1) % n, n)
            for i, device in enumerate(devices)
        ]
    for device in devices:
        device.after(*done)


def bytes_received(algorithm: str, num_devices: int, num_values: int) -> tuple[int, int]:
    """What all devices receive together, and what the busiest one does, for float32 values in one tensor per device."""
    each, longer = divmod(num_values, num_devices)
    if algorithm == "naive":
        busiest = (num_devices - 1) * num_values
    else:  # device d receives every chunk twice but for chunks d and d + 1, of which the first `longer` have one more
        chunks = [each + (chunk < longer) for chunk in range(num_devices)]
        busiest = max(2 * num_values - chunks[d] - chunks[(d + 1) % num_devices] for d in range(num_devices))
    return 4 * 2 * (num_devices - 1) * num_values, 4 * busiest


def _parts(bucket: list[Tensor], chunk: int, num_chunks: int) -> list[Tensor]:
    return [tensor.view(-1).tensor_split(num_chunks)[chunk] for tensor in bucket]


def _add(mine: list[Tensor], other: list[Tensor], _after: object = None, chunk: int = 0, num_chunks: int = 1) -> None:
    for a, b in zip(_parts(mine, chunk, num_chunks), _parts(other, chunk, num_chunks), strict=True):
        a.add_(keep_until_copied(b).to(a.device, non_blocking=a.is_cuda))  # what a CPU reads must have come


def _copy(mine: list[Tensor], other: list[Tensor], _after: object = None, chunk: int = 0, num_chunks: int = 1) -> None:
    for a, b in zip(_parts(mine, chunk, num_chunks), _parts(other, chunk, num_chunks), strict=True):
        a.copy_(keep_until_copied(b), non_blocking=a.is_cuda)


ALGORITHMS: dict[str, AllReduce] = {"naive": naive, "ring": ring}
