"""Where a step's time goes, from records whose truth is known: the planted cause is blamed, and no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import matplotlib.pyplot as plt
import pytest
from scalecard.analysis import breakdown
from scalecard.analysis.platforms import PlatformResults
from scalecard.records.record import Count, Record, Result, Telemetry
from scalecard.records.strategies import ALL, OURS, SINGLE, Family, Strategy, Untimed
from scalecard.report.answers import why
from support.builders import gpu_state, hardware_state, timed

MS = 1e-3
WHERE = {"workload": "gpt", "devices": 4, "scaling": "strong", "batch_size": 64, "unit": "samples", "units": 64}
ONE = {"workload": "gpt", "devices": 1, "batch_size": 64, "unit": "samples", "units": 64}
STAGES = {"workload": "gpt", "devices": 4, "scaling": "strong", "batch_size": 64}


def steady(milliseconds: float, **case: Any) -> Record:
    """Twenty samples about a time, which differ by 0.1 %."""
    return timed([milliseconds * MS * (1 + 1e-4 * (number % 3 - 1)) for number in range(20)], **case)


def of_ddp(
    *, local: float = 25, ranks: tuple[float, ...] = (25, 25, 25, 25), exchange: float = 5, step: float | None = None
) -> list[Record]:
    """One device takes 100 ms for 64 samples; four take the slowest rank's time, and half of the exchange."""
    case = {**WHERE, "strategy": "DDP"}
    return [
        steady(100, metric="step_time", **ONE, strategy="single device", scaling="strong"),
        steady(100, metric="local_time", **ONE),
        steady(local, metric="local_time", **{**ONE, "batch_size": 16, "units": 16}),
        steady(max(ranks), metric="unsynchronised_time", **case),
        *(steady(rank, metric="rank_time", **case, rank=number) for number, rank in enumerate(ranks)),
        steady(exchange, metric="exchange_time", **case),
        steady(max(ranks) + exchange / 2 if step is None else step, metric="step_time", **case),
    ]


def launch_bound(records: list[Record], state: Any) -> list[Record]:
    """The same, on a GPU for which the host was never done with launching before the last tenth."""
    late = [Telemetry(rounds_id="rounds 0", enqueue=0.99 * record.median, state=state) for record in records]
    pairs = zip(records, late, strict=True)
    return [replace(one, telemetry=[told]) if one.metric == "local_time" else one for one, told in pairs]


def of_pipeline(*stages: float, bubble: float, step: float | None = None) -> list[Record]:
    """Two to four stages that compute so long in a step, played in their slowest one's time and a bubble."""
    case = {**WHERE, "strategy": "our gpipe"}
    alone = []
    for number, stage in enumerate(stages):
        own = {**STAGES, "stage": number, "split_size": 8}
        alone.append(steady(0.9 * stage, metric="stage_time", **own, part="forward and backward"))
        alone.append(steady(0.1 * stage, metric="stage_time", workload="gpt", devices=4, stage=number, part="update"))
        alone.append(steady(5 * stage, metric="stage_time", **{**own, "split_size": 64}, part="forward and backward"))
    played = max(stages) + bubble
    return [
        steady(100, metric="step_time", **ONE, strategy="single device", scaling="strong"),
        *alone,
        steady(played, metric="played_time", **case),
        steady(played if step is None else step, metric="step_time", **case),
    ]


def of_input(milliseconds: float) -> list[Record]:
    """Batches of 32 samples, with no worker and with four."""
    batch = {"workload": "gpt", "batch_size": 32}
    return [
        steady(10 * milliseconds, metric="load_time", **batch, workers=0),
        steady(milliseconds, metric="load_time", **batch, workers=4),
    ]


Make = Callable[..., PlatformResults]


@pytest.fixture
def measured(make_result: Callable[..., Result]) -> Make:
    def make(records: list[Record], loads: list[Record] | None = None) -> PlatformResults:
        results = {"strategies": make_result(records, experiment="strategies")}
        if loads:
            results["input"] = make_result(loads, experiment="input")
        return PlatformResults(results)

    return make


def terms(measured: PlatformResults) -> dict[str, float]:
    """Of the only step on several devices, in ms."""
    (found,) = breakdown.of_strategies(measured)
    assert found.seconds == pytest.approx(sum(term.seconds for term in found.terms if term.name != "input"))
    return {term.name: round(1e3 * term.seconds, 2) for term in found.terms if abs(term.seconds) > 1e-6}


@pytest.mark.parametrize(
    ("records", "said", "seconds"),
    [
        (of_ddp(local=30, ranks=(30,) * 4, exchange=2), "smaller batch", 5),
        (of_ddp(ranks=(31,) * 4, exchange=2), "side by side", 6),
        (of_ddp(ranks=(25, 25, 33, 25), exchange=2), "slowest rank", 6),
        (of_ddp(exchange=10), "communication", 5),
        (of_pipeline(24, 44, 24, 24, bubble=3), "uneven cut", 15),
        (of_pipeline(26, 26, 26, 26, bubble=9), "bubble", 9),
        (of_pipeline(30, 30, 30, 30, bubble=2), "smaller batch", 5),
    ],
)
def test_the_planted_cause_is_the_largest_term(
    records: list[Record], said: str, seconds: float, measured: Make
) -> None:
    (found,) = breakdown.of_strategies(measured(records))
    assert (found.largest.name, round(1e3 * found.largest.seconds, 1)) == (said, seconds)
    assert found.explained
    (finding,) = why.findings(measured(records))
    assert why.IS[said] in finding.text


def test_terms_add_up_to_the_step(measured: Make) -> None:
    """25 ideal, 2 less efficient, 1 side by side, 2 waiting for rank 1, and 3 that the exchange of 6 does not hide."""
    records = of_ddp(local=27, ranks=(27.33, 30, 27.33, 27.33), exchange=6)
    assert terms(measured(records)) == {
        "compute": 25,
        "smaller batch": 2,
        "side by side": 1,
        "slowest rank": 2,
        "communication": 3,
    }


def updated(milliseconds: float) -> Record:
    return steady(milliseconds, metric="update_time", workload="gpt", devices=1)


def test_what_updating_all_parameters_takes_is_told_apart_from_a_small_batch(measured: Make) -> None:
    """8 ms of one device's 100: of its share of 25 ms, 2 are the update, but each rank takes 8, and so 31 ms."""
    records = [*of_ddp(local=32, ranks=(32,) * 4, exchange=6), updated(8)]
    assert terms(measured(records)) == {"compute": 25, "update": 6, "smaller batch": 1, "communication": 3}
    (finding,) = why.findings(measured(records))
    assert "is the update of parameters, which no smaller batch makes shorter" in finding.text


@pytest.mark.parametrize(("name", "update", "exposed"), [("ZeRO-1", 0, 4), ("FSDP gradients", 0, 4), ("DDP", 6, 4)])
def test_what_divides_the_update_spends_no_more_on_it_than_its_share(
    name: str, update: float, exposed: float, measured: Make
) -> None:
    """DDP's ranks take 31 ms without exchanging, of which 8 are the update; those that divide it take 25 and 4 more."""
    others = [record for record in of_ddp(local=31, ranks=(31,) * 4, exchange=4) if record.metric != "step_time"]
    single = steady(100, metric="step_time", **ONE, strategy="single device", scaling="strong")
    step = steady(25 + update + exposed, metric="step_time", **WHERE, strategy=name)
    found = terms(measured([single, *others, updated(8), step]))
    wanted = {"compute": 25, "update": update, "communication": exposed}
    assert found == {term: seconds for term, seconds in wanted.items() if seconds}


def test_what_the_host_updates_has_no_term_of_its_own(measured: Make) -> None:
    """One device's 8 ms say nothing of the host's cores: its 10 ms are part of the rest, and its name is said."""
    others = [record for record in of_ddp(local=31, ranks=(31,) * 4, exchange=4) if record.metric != "step_time"]
    single = steady(100, metric="step_time", **ONE, strategy="single device", scaling="strong")
    step = steady(25 + 6 + 10, metric="step_time", **WHERE, strategy="FSDP offload")
    results = measured([single, *others, updated(8), step])
    assert terms(results) == {"compute": 25, "communication": 6, "the rest": 10}
    assert any(
        "FSDP offload: update (copies from and to the host's memory" in found.text for found in why.findings(results)
    )


def test_stages_share_the_update(measured: Make) -> None:
    """Each of four stages updates for 3 ms, together 12 where one device takes 8."""
    records = [*of_pipeline(30, 30, 30, 30, bubble=2), updated(8)]
    assert terms(measured(records)) == {"compute": 25, "update": 1, "smaller batch": 4, "bubble": 2}


def test_what_is_computed_again_is_no_ideal(measured: Make) -> None:
    """A quarter of the operations, and of the 92 ms in which one device does not update."""
    single, *others = of_ddp(local=25, exchange=2)
    work = [Count(name=name, counted=n, expected=n) for name, n in (("FLOPs", 400.0), ("recomputed FLOPs", 100.0))]
    found = terms(measured([replace(single, work=work), *others, updated(8)]))
    assert (found["compute"], found["recomputation"]) == (25 - 5.75, 5.75)
    assert found["update"] == 6
    (finding,) = why.findings(measured([replace(single, work=work), *others, updated(8)]))
    assert "ideal would be 25 ms, of which 5.75 ms compute again what checkpointing has not kept." in finding.text
    assert finding.headline == "gpt: update, 23 %"


def test_a_step_that_the_host_launches_too_slowly_is_not_blamed_on_the_batch(
    measured: Make,
) -> None:
    records = launch_bound(of_ddp(local=40, ranks=(40,) * 4, exchange=2), hardware_state(gpu_state()))
    (found,) = breakdown.of_strategies(measured(records))
    assert (found.largest.name, round(1e3 * found.largest.seconds)) == ("launching", 15)


def test_a_loader_that_starves_the_step_is_blamed_for_what_it_takes_longer(
    measured: Make,
) -> None:
    """Two batches of 32 for the 64 samples of a step of 26 ms; the fastest loader takes 20 ms for each."""
    found = terms(measured(of_ddp(exchange=2), of_input(20)))
    assert found["input"] == 14
    assert "input" not in terms(measured(of_ddp(exchange=2), of_input(12)))
    (finding,) = why.findings(measured(of_ddp(exchange=2), of_input(20)))
    assert "a step takes 26 ms (40 ms if its loader feeds it)" in finding.text
    (unexplained,) = breakdown.of_strategies(measured(of_ddp(exchange=5, step=45), of_input(200)))
    assert not unexplained.explained, "a slow loader explains nothing of the step"


def test_the_slowest_rank_is_named_if_it_is_always_the_same(measured: Make) -> None:
    (finding,) = why.findings(measured(of_ddp(ranks=(25, 25, 33, 25), exchange=2)))
    assert "nearly always rank 2." in finding.text
    assert "health check" not in finding.text, "these are CPU ranks"
    records = of_ddp(ranks=(25, 33, 33, 25), exchange=2)
    first, second = [record for record in records if record.case.get("rank") in (1, 2)]
    turns = [[value * (1.1 if number % 2 else 0.9) for number, value in enumerate(first.samples[0])]]
    other = [[value * (0.9 if number % 2 else 1.1) for number, value in enumerate(second.samples[0])]]
    swapped = [
        replace(record, samples=turns if record is first else other) if record in (first, second) else record
        for record in records
    ]
    (finding,) = why.findings(measured(swapped))
    assert "always rank" not in finding.text


def test_what_the_parts_do_not_explain_is_said(measured: Make) -> None:
    """The exchange alone takes 5 ms, so 5 ms at most are communication, but the step takes 20 ms more."""
    (finding,) = why.findings(measured(of_ddp(exchange=5, step=45)))
    assert terms(measured(of_ddp(exchange=5, step=45)))["the rest"] == 15
    assert "15.0 ms" in finding.text
    assert "(33 % of the step) is unexplained." in finding.text


def test_of_fsdp_at_most_what_its_bytes_take_is_communication(measured: Make) -> None:
    """Beside an exchange of 4 ms: 4 ms if parameters are gathered once, 6 ms if twice, of 12 ms."""
    for name, exposed in (("FSDP gradients", 4), ("FSDP parameters", 6)):
        step = steady(37, metric="step_time", **WHERE, strategy=name)
        found = breakdown.of_strategies(measured([*of_ddp(exchange=4), step]))[-1]
        assert found.of("communication") == pytest.approx(exposed * MS)
        assert found.of("the rest") == pytest.approx((12 - exposed) * MS)
        assert not found.explained


def test_of_one_node_nothing_is_told_from_several(measured: Make) -> None:
    """Four devices of one node, and one of each of four nodes, whose ranks are slower and exchange for longer."""
    within = of_ddp(exchange=2)
    over = [
        replace(record, case={**record.case, "nodes": 4}, samples=[[2 * value for value in record.samples[0][:15]]])
        for record in within
        if record.case["devices"] == 4
    ]
    for records in ([*within, *over], [*over, *within]):
        by_nodes = {each.run.step.case.get("nodes"): each for each in breakdown.of_strategies(measured(records))}
        assert by_nodes[None].of("side by side") == pytest.approx(0, abs=1e-9)
        assert by_nodes[None].of("communication") == pytest.approx(1 * MS)
        assert by_nodes[4].of("side by side") == pytest.approx(25 * MS)


def test_each_workload_is_drawn_at_the_scaling_that_it_has(measured: Make) -> None:
    """One that cannot share its batch was timed with weak scaling only."""
    weak = [
        replace(
            record,
            case={**record.case, "workload": "large", **({"scaling": "weak"} if "scaling" in record.case else {})},
        )
        for record in of_ddp()
    ]
    told = why.findings(measured([*of_ddp(), *weak]))
    assert {finding.text.split(",")[0] for finding in told} == {"gpt", "large"}


def test_a_part_within_its_error_is_named_as_such(measured: Make) -> None:
    """The exchange is hidden but for 1 ms, and steps differ by 10 ms from round to round."""
    records = of_ddp(exchange=2)
    noisy = [
        replace(
            record, samples=[[value + (number % 2 - 0.5) * 10e-3 for number, value in enumerate(record.samples[0])]]
        )
        if record.metric == "step_time" and record.case["devices"] == 4
        else record
        for record in records
    ]
    (finding,) = why.findings(measured(noisy))
    assert "is communication that is not hidden behind computing, but within its error." in finding.text
    assert finding.headline == ""


def test_emulated_devices_get_no_advice(measured: Make) -> None:
    trial = measured(of_ddp(exchange=10))
    assert trial.emulated
    (finding,) = why.findings(trial)
    assert "would reduce it" not in finding.text


def test_without_a_single_device_or_its_parts_only_the_rest_is_left(measured: Make) -> None:
    single, *others = of_ddp()
    assert breakdown.of_strategies(measured(others)) == []
    tensor = steady(40, metric="step_time", **WHERE, strategy="tensor parallel")
    assert terms(measured([single, tensor])) == {"compute": 25, "the rest": 15}
    (bare,) = breakdown.of_strategies(measured([single, others[-1]]))
    assert bare.untimed == (Untimed.RANKS,)
    assert why.findings(PlatformResults({})) == []


def test_the_bubble_of_an_interleaved_schedule_is_that_of_equal_stages(
    measured: Make,
) -> None:
    """Four devices compute 30 ms each: 27 on eight micro-batches, of which three halves pass while others wait."""
    single, *alone, _, _ = of_pipeline(30, 30, 30, 30, bubble=9)
    step = steady(40, metric="step_time", **WHERE, strategy="torch interleaved 1f1b")
    (found,) = breakdown.of_strategies(measured([single, *alone, step]))
    assert terms(measured([single, *alone, step])) == {
        "compute": 25,
        "smaller batch": 5,
        "bubble": pytest.approx(27 / 8 * 3 / 2, abs=0.01),
        "the rest": pytest.approx(10 - 27 / 8 * 3 / 2, abs=0.01),
    }
    assert found.untimed == (Untimed.STAGE_PAIRS,)


def of_two_stages(strategy: str) -> list[Record]:
    """The records of a pipeline of two stages, timed over 64 samples with weak scaling, and played by a strategy."""
    others = {"devices": 2, "scaling": "weak", "strategy": strategy}
    own = [record for record in of_pipeline(60, 70, bubble=9) if record.metric in ("stage_time", "played_time")]
    return [replace(one, case={axis: others.get(axis, value) for axis, value in one.case.items()}) for one in own]


def test_a_replicas_pipeline_is_told_where_it_was_timed_with_such_a_batch(
    measured: Make,
) -> None:
    """Two replicas share 128 samples, or 64: two devices alone were timed over 64."""
    single = steady(100, metric="step_time", **ONE, strategy="single device", scaling="strong")
    strong = {**WHERE, "strategy": "data x pipeline"}
    weak = {**strong, "scaling": "weak", "batch_size": 128, "units": 128}
    alone = [single, *of_two_stages("our 1f1b")]
    of_weak = measured([*alone, steady(100, metric="step_time", **weak)])
    assert terms(of_weak) == {"compute": 50, "smaller batch": 15, "uneven cut": 5, "bubble": 9, "the rest": 21}
    of_strong = measured([*alone, steady(50, metric="step_time", **strong)])
    for made, untimed in ((of_weak, [Untimed.REPLICAS]), (of_strong, [Untimed.STAGES, Untimed.REPLICAS])):
        (found,) = breakdown.of_strategies(made)
        assert list(found.untimed) == untimed


def test_terms_that_nothing_tells_are_said_to_be_missing_and_why(measured: Make) -> None:
    names = ("tensor parallel", "data x tensor")
    steps = [steady(40 + place, metric="step_time", **WHERE, strategy=name) for place, name in enumerate(names)]
    *_, finding = why.findings(measured([*of_ddp(), *steps]))
    assert finding.text == (
        "Part of the rest, not measured apart:"
        " tensor parallel, data x tensor: communication (divided layers with their all-reduces are not timed alone);"
        " data x tensor: slowest rank, communication (replicas with what they exchange are not timed alone)."
    )
    assert len(why.findings(measured(of_ddp()))) == 1, "of DDP nothing is missing"


TERMS = {
    Family.DATA: {breakdown.SMALLER, breakdown.SHARING, breakdown.SLOWEST, breakdown.EXPOSED},
    Family.STAGES: {breakdown.SMALLER, breakdown.UNEVEN, breakdown.BUBBLE},
    Family.TENSOR: {breakdown.EXPOSED},
    Family.PRODUCT: {breakdown.SLOWEST, breakdown.EXPOSED},
}


@pytest.mark.parametrize("kind", [kind for kind in ALL if kind is not SINGLE], ids=lambda kind: kind.name)
def test_every_strategy_has_its_terms_or_says_which_are_missing(kind: Strategy, measured: Make) -> None:
    """Of a box on which everything was timed alone that can be, but at a replica's share of the batch."""
    parts = [r for r in [*of_ddp(), *of_pipeline(26, 26, 26, 26, bubble=9)[1:]] if r.metric != "step_time"]
    played = next(record for record in parts if record.metric == "played_time")
    parts += [replace(played, case={**played.case, "strategy": ours.name}) for ours in OURS.values()]
    single = steady(100, metric="step_time", **ONE, strategy="single device", scaling="strong")
    step = steady(45, metric="step_time", **WHERE, strategy=kind.name)
    (found,) = breakdown.of_strategies(measured([single, *parts, step]))
    told, missing = (
        {term.name for term in found.terms},
        {name for one in found.untimed for name in breakdown.TERMS_OF[one]},
    )
    assert TERMS[kind.family] <= told | missing
    assert not told & missing
    assert bool(missing) == bool(kind.untimed)


def test_a_share_between_two_sizes_is_on_the_line_between_them(measured: Make) -> None:
    """64 samples on 3 devices are 21.3 on each: a ninth of the way from 16 samples in 25 ms to 64 in 100 ms."""
    records = [
        replace(record, case={**record.case, "devices": 3}) if record.case.get("devices") == 4 else record
        for record in of_ddp()
    ]
    assert terms(measured(records))["compute"] == pytest.approx(33.33)
    assert "smaller batch" not in terms(measured(records)), "as efficient as the whole batch"


def test_the_figure_has_a_bar_for_every_strategy(measured: Make) -> None:
    records = [*of_ddp(), *of_pipeline(26, 26, 26, 26, bubble=9)[1:]]
    figure = why.plot(measured(records))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["DDP", "our gpipe"]
    plt.close(figure)
    (table,) = why.tables(measured(records))
    assert [row[1].text for row in table.rows] == ["DDP", "our gpipe"]
    assert dict(zip(table.head, table.texts[1], strict=True))["Bubble"] == "9.00 ms (26 %)"
    plt.close(why.plot(measured([])))
