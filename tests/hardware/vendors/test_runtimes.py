"""PyTorch computes on the GPUs that the driver lists, and on the whole of them, or nothing is measured."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from scalecard.hardware.machine import probe
from scalecard.hardware.vendors.nvidia.runtime import refuse_unusable
from support.fake_nvml import A100, GTX, FakeNvml, box

Install = Callable[..., FakeNvml]


def test_gpus_that_this_pytorch_cannot_use_are_refused_by_name(install_gpus: Install) -> None:
    install_gpus(box(GTX, 2))
    many = replace(probe(), gpus=[GTX.name] * 99)  # more than any machine has
    with pytest.raises(ValueError, match=rf"^GPU \d+ \({GTX.name}, driver 580\.65\.06\): PyTorch"):
        refuse_unusable(many)


@pytest.mark.parametrize(
    ("error", "advice", "wrong"),
    [
        (
            "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling"
            " NumCudaDevices() that might have already set an error? Error 802: system not yet initialized",
            "nvidia-fabricmanager",
            "update the driver",
        ),
        ("CUDA error: no kernel image is available for execution on the device", "OWN_TORCH=1", "fabric"),
        ("The NVIDIA driver on your system is too old (found version 12080).", "update the driver", "fabric"),
    ],
)
def test_what_to_do_follows_from_the_error_of_cuda(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, error: str, advice: str, wrong: str
) -> None:
    install_gpus(box(A100, 1))

    def fails(*size: int, device: str) -> None:
        raise RuntimeError(error)

    monkeypatch.setattr(torch, "ones", fails)
    with pytest.raises(ValueError, match=advice) as raised:
        refuse_unusable(probe())
    assert error.rstrip(".") in str(raised.value)
    assert wrong not in str(raised.value)
    assert "make lock" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "share", "refused"),
    [(A100.name, 0.98, False), (A100.name, 0.12, True), (f"{A100.name} MIG 1g.5gb", 0.12, True), (GTX.name, 1, True)],
)
def test_a_gpu_that_cuda_sees_as_another_one_is_refused(
    install_gpus: Install, monkeypatch: pytest.MonkeyPatch, name: str, share: float, refused: bool
) -> None:
    install_gpus(box(A100, 1))
    seen = SimpleNamespace(name=name, total_memory=int(A100.memory * share))
    monkeypatch.setattr(torch, "ones", lambda *size, device: SimpleNamespace(add_=lambda one: torch.zeros(1)))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: seen)
    if refused:
        with pytest.raises(ValueError, match=rf"^GPU 0: .*{A100.name} with 40 GiB.*{name}.*CUDA_VISIBLE_DEVICES"):
            refuse_unusable(probe())
    else:
        refuse_unusable(probe())
