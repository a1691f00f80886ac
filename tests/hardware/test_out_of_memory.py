"""Too little memory is one sentence, also where it shows as a library that cannot be loaded."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from scalecard.hardware import host
from support.projects import ROOT


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), True),
        (MemoryError(), True),
        (ImportError("No module named 'torch'"), False),
    ],
)
def test_only_want_of_memory_is_called_so(error: Exception, expected: bool) -> None:
    assert host.is_out_of_memory(error) == expected


def test_a_measurement_without_memory_ends_with_one_sentence(tmp_path: Path) -> None:
    blocks = tmp_path / "blocks.json"
    blocks.write_text('{"quick": {"ddp": "{}"}}')

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 * 2**20, 400 * 2**20))

    done = subprocess.run(
        [sys.executable, "-m", "scalecard", "check", str(blocks)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "workflow" / "src"), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=limit,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "too little memory" in done.stderr
    assert "`ulimit -v` allows 400 MiB" in done.stderr
