"""The examples of docs/own-model.md: each is short, is a workload, and is trained by data parallelism."""

import re
from pathlib import Path

import pytest
from scalecard.benchmarks.training.validate import check, examined
from scalecard.workloads.workload import HOST, Workload
from support.projects import ROOT

HEAD = """
from collections import OrderedDict
import torch
from torch import nn
from torch.nn import functional

def batch(size, seed):
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :4].argmax(1)

loss = functional.cross_entropy

"""
TEXT = (ROOT / "docs/own-model.md").read_text().partition("## Examples")[2].partition("## Further packages")[0]
EXAMPLES = dict(re.findall(r"```python\n# (.*?)\n(.*?)```", TEXT, flags=re.DOTALL))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short_and_can_be_trained(name: str, tmp_path: Path) -> None:
    text = EXAMPLES[name]
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
    path = tmp_path / "mine.py"
    path.write_text(HEAD + text)
    workload = Workload(re.sub(r"\W", "_", name), str(path), "{}", 4, seed=0)
    check(workload)
    found = examined(workload, HOST, 2, 2)
    assert found.lr > 0
    assert (found.inexact, found.no_mean) == (False, False)


def test_the_page_has_its_examples() -> None:
    assert len(EXAMPLES) >= 5
