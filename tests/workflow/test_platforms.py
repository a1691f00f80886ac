"""Results of other platforms beside this machine's: shown, never measured, and refused where they cannot be right."""

from pathlib import Path

import pytest
from projects import SMOKE, completed, made_at, made_since, outputs, planned, snakemake
from scalecard.hardware.machine import probe
from scalecard.records.files import InvalidResult, parse

pytestmark = pytest.mark.workflow

HERE = probe().slug
CHANGES = 'id="changes"'  # the report's section on what differs between platforms


def add_platform(folder: Path, label: str) -> Path:
    """This machine's all-reduce as the result of another platform."""
    text = (folder / "results" / HERE / "allreduce.json").read_text()
    path = folder / "results" / label / "allreduce.json"
    path.parent.mkdir()
    path.write_text(text.replace(f'"platform": "{HERE}"', f'"platform": "{label}"'))
    return path


def test_another_machine_under_the_same_label_is_refused_before_any_job(own_copy: Path) -> None:
    folder = add_platform(own_copy, "my-box").parent
    facts = (own_copy / "results" / HERE / "machine.json").read_text()
    (folder / "machine.json").write_text(facts.replace('"driver": null', '"driver": "570.1"'))
    before = made_at(own_copy)
    refused = snakemake(own_copy, *SMOKE, "--config", "platform=my-box")
    assert refused.returncode != 0
    for said in ("results/my-box/machine.json", "570.1"):
        assert said in refused.stdout
    assert "Traceback" not in refused.stdout
    assert made_at(own_copy) == before


def test_another_platform_is_shown_beside_this_one_and_never_measured(own_copy: Path) -> None:
    assert CHANGES not in (own_copy / "results" / "report.html").read_text()
    older = add_platform(own_copy, "older-box")
    add_platform(own_copy, "a;touch PWNED;b")
    before = made_at(own_copy)
    assert planned(own_copy, *SMOKE) == outputs(figures=["allreduce"])
    said = completed(own_copy, *SMOKE)
    assert "'results/a;touch PWNED;b': ignored, because it is not named like a platform" in said
    assert not (own_copy / "PWNED").exists()
    assert made_since(own_copy, before) == outputs(figures=["allreduce"])
    report = (own_copy / "results" / "report.html").read_text()
    assert CHANGES in report
    assert report.index(HERE) < report.index("older-box")

    older.unlink()
    assert planned(own_copy, *SMOKE) == outputs(figures=["allreduce"]), "without it"


def test_a_result_that_is_cut_off_is_refused_by_its_name(own_copy: Path) -> None:
    older = add_platform(own_copy, "older-box")
    older.write_text(older.read_text()[:200])
    with pytest.raises(InvalidResult) as error:
        parse(older.read_text(), "results/older-box/allreduce.json")
    refused = snakemake(own_copy, *SMOKE)
    assert refused.returncode != 0
    assert str(error.value) in refused.stdout
    assert "Traceback" not in refused.stdout
