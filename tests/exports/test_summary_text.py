"""The summary for a ticket says what the report says: machine, health, scaling, what to use, and trust."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from scalecard.analysis import platforms, provenance
from scalecard.exports.summary_text import TRIAL, summary
from scalecard.records.record import Record, Result
from scalecard.report.answers import use
from scalecard.report.sections import health
from scalecard.report.table import markdown
from support.builders import gpu_state, hardware_state
from support.eight_gpus import measured, step, strategies, too_large
from support.exported import results, text

Make = Callable[..., Result]


def part(written: str, title: str) -> list[str]:
    """The lines under a heading."""
    found = re.search(rf"^## {title}\n\n(.*?)(?=\n## |\Z)", written, re.DOTALL | re.MULTILINE)
    assert found, title
    return found[1].strip().splitlines()


def gpt(make_result: Make, *records: Record) -> Result:
    result = measured(make_result, strategies=records or strategies()).of("strategies")
    assert result is not None
    return result


def test_machine_date_driver_software_and_commit_come_first() -> None:
    head = text("summary.md", 8).partition("\n## ")[0]
    environment = results(8)[0].environment
    assert head.startswith("# ScaleCard: 8 x NVIDIA A100-SXM4-40GB, driver 580.1; CPU box8")
    for line in (
        "- Measured: 2026-01-01 00:10 UTC",
        f"- Platform: box8, fingerprint {environment['fingerprint']}",
        "- Driver: 580.1",
        f"- PyTorch: {environment['torch']}",
        "- Container: none",
        f"- ScaleCard: commit {environment['commit'][:12]}",
    ):
        assert line in head
    assert TRIAL not in head


def test_an_image_is_named_by_its_digest(make_result: Make) -> None:
    result = gpt(make_result)
    facts = {"container": f"sha256:{'a1' * 32}", "container_engine": "podman"}
    assert "- Container: podman, sha256:a1a1a1a1a1a1\n" in summary(
        [replace(result, environment={**result.environment, **facts})]
    )


def test_without_gpus_it_is_a_trial_without_advice() -> None:
    written = text("summary.md")
    assert TRIAL in written
    assert part(written, "What to use") == ["- No advice is given: CPU workers stand in for devices."]
    assert part(written, "Trust")[3] == "- Throttling is not known: no GPU was watched."


def test_health_has_a_line_per_part_and_the_reports_sentences() -> None:
    (result,) = [result for result in results(8) if result.experiment == "health"]
    said = "\n".join(part(text("summary.md", 8), "Health"))
    assert "- ✓ network: normal; " in said
    assert re.search(
        r"- . compute: odd one out; \d+ TFLOP/s.* \(GPU \d, \w+ products, alone\); \d+ of \d+ normal", said
    )
    for finding in health.findings(result):
        assert markdown(finding.text).replace("\\`", "`")[:60] in said.replace("\\`", "`")
    assert "`nvidia-smi -q -d PCIE`" in said, "a command stays one"


def test_scaling_is_that_of_the_fastest_strategy_on_the_most_devices(make_result: Make) -> None:
    """29.25 ms instead of 100 ms on 8 devices; eight times the samples in 108 ms."""
    strong, weak = part(summary([gpt(make_result)]), "Scaling")
    spread = r"\(.* to .*\) the rate of one device"
    assert re.fullmatch(rf"- gpt, strong scaling: DDP on 8 devices: 3\.4\dx {spread}, 43 % efficient\.", strong)
    assert re.fullmatch(rf"- gpt, weak scaling: DDP on 8 devices: 7\.4\dx {spread}, 93 % efficient\.", weak)


def test_what_to_use_is_the_reports_advice(make_result: Make) -> None:
    result = gpt(make_result)
    said = [f"- {markdown(finding.text)}" for finding in use.findings(platforms.current([result]))]
    assert part(summary([result]), "What to use") == said
    assert "use DDP on 8 devices" in said[0]


def test_what_was_not_measured_is_said_so(make_result: Make) -> None:
    written = summary([gpt(make_result, step("single device", 1, 0.1), too_large("DDP", 2))])
    assert part(written, "Health") == part(written, "Scaling") == ["- Not measured."]


def test_trust_counts_cases_proofs_and_processes() -> None:
    records = [record for result in results(8) for record in result.records]
    proven = sum(len(record.checks) for record in records)
    ok, skipped = (sum(record.status == word for record in records) for word in ("ok", "skipped"))
    said = part(text("summary.md", 8), "Trust")
    assert said[:5] == [
        f"- Cases: {ok} measured, {skipped} skipped, 1 failed.",
        f"- All {proven} proofs passed before timing.",
        f"- All {proven} counts of work are as expected.",
        f"- No throttling in {proven} cases.",
        "- 2 processes per case.",
    ]
    assert said[5].startswith("- A step of gpt on one device took ")
    assert said[6].startswith("- Warning: the data set is synthetic (")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("hardware slowdown", "Throttled: in 1 of 3 timed cases a GPU was slowed down."),
        ("power cap", "No throttling in 3 cases."),
    ],
)
def test_a_slow_down_is_counted_and_a_power_cap_is_not(reason: str, said: str) -> None:
    (result,) = [result for result in results(8) if result.experiment == "hybrid"]
    first, *others = result.records
    state = hardware_state(gpu_state(reasons={reason: 0.2}))
    records = [replace(first, telemetry=[replace(entry, state=state) for entry in first.telemetry]), *others]
    assert said in provenance.trust([replace(result, records=records)])


def test_one_process_and_no_warnings_are_said_too(make_result: Make) -> None:
    result = gpt(make_result)
    single = [replace(record, samples=record.samples[:1], telemetry=record.telemetry[:1]) for record in result.records]
    said = provenance.trust([replace(result, records=single)])
    assert said[4:] == [
        "One process per case, so the spread between processes is not known.",
        "No warnings.",
    ]


def test_odd_names_stay_in_their_line(make_result: Make) -> None:
    odd = [step("single device", 1, 0.1), step("DDP", 2, 0.06)]
    odd = [replace(record, case={**record.case, "workload": "# a\n| <b>*"}) for record in odd]
    (line,) = part(summary([gpt(make_result, *odd)]), "Scaling")
    assert line.startswith(r"- \# a \| \<b\>\*, strong scaling: DDP on 2 devices: 1.6")
