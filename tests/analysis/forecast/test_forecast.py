"""Forecasts of simulated clusters, whose truth on any number of devices is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scalecard.analysis.forecast.fitted_terms import NUM, band, middle
from scalecard.analysis.forecast.forecast import MODELS, accuracy, forecasts, reasons, without_a_model
from scalecard.analysis.forecast.model import DataParallel, Pipeline, Settings
from scalecard.analysis.forecast.network import Layout, layout_of
from scalecard.analysis.platforms import PlatformResults
from scalecard.records.axes import Case
from scalecard.records.record import Record, Result
from scalecard.records.statistics import Interval
from scalecard.records.strategies import ALL, SINGLE, Collective
from scalecard.report.answers import forecast as answer
from support.blocks import CONFIG
from support.forecast_results import Results, changed, found, results
from support.simulated_clusters import WATTS, Cause, drawn, true_step
from support.simulated_events import Cluster, buckets, hsdp

DDP = ("DDP", "strong"), ("DDP", "weak")


@pytest.mark.parametrize("cause", [None, "communication", "slow rank"])
def test_the_most_devices_are_forecast_from_fewer(cause: Cause | None) -> None:
    median, inside, count = accuracy([one.held_out for one in found(results(cause)).values() if one.held_out])
    assert count == 10
    assert median <= 0.05
    assert inside >= 9


@pytest.mark.parametrize(
    ("experiment", "metric"),
    [("strategies", "step_time"), ("strategies", "unsynchronised_time"), ("strategies", "rank_time"),
     ("strategies", "played_time"), ("allreduce", "time"), ("health", "time")],
)  # fmt: skip
def test_what_is_measured_on_the_most_devices_moves_no_forecast(experiment: str, metric: str) -> None:
    before = found(results())
    after = found(changed(results(), experiment, {metric: 3.0}, devices=8))
    for case, one in before.items():
        for count in (8, 64):
            if count in one.efficiencies:
                assert middle(after[case].model.seconds(count)) == middle(one.model.seconds(count))


def test_of_two_devices_the_step_is_not_used() -> None:
    """Only the parts are, so what overlaps is not known, and the band says so."""
    two = results(devices=2, cause="communication")
    before, after = found(two), found(changed(two, "strategies", {"step_time": 3.0}, devices=2))
    for case in DDP:
        held = before[case].held_out
        assert held is not None
        assert held.inside
        assert held.band.half_width > 0.05 * held.forecast
        assert middle(after[case].model.seconds(2)) == pytest.approx(held.forecast)


def test_of_two_devices_the_stages_are_known() -> None:
    """Played schedules are parts: they tell how unequal stages are, though not what handing over costs."""
    for cause in (None, "unbalanced cut"):
        held = found(results(cause, devices=2))["our gpipe", "weak"].held_out  # type: ignore[arg-type]
        assert held is not None
        assert abs(held.error) < 0.1


def with_ddp(of: Results, model: str) -> Results:
    """One device's steps, and DDP's with as many samples on each, also as the experiment `ddp` records them."""
    own, records = of["strategies"], list[Record]()
    steps = [*own.select("step_time", strategy=SINGLE.name), *own.select("step_time", strategy="DDP", scaling="weak")]
    for step in steps:
        devices = step.integer("devices")
        scaling = "weak" if devices > 1 else "plain"
        case: Case = {"workload": model, "devices": devices, "scaling": scaling, "batch_size": step.case["batch_size"]}
        records.append(replace(step, case=case))
    return {**of, "ddp": replace(own, experiment="ddp", records=records)}


def test_the_textbooks_resnet18_is_forecast_from_what_ddp_timed() -> None:
    """From whole batches alone: nothing is said of smaller ones. Of LeNet, which computes little, there is none."""
    (one,) = [
        one for one in forecasts(with_ddp(results(), "resnet18"), Settings()) if one.model.workload.name == "resnet18"
    ]
    assert (one.model.strategy.name, one.model.scaling) == DDP[1]
    assert one.held_out is not None
    assert one.held_out.layout == Layout(8)
    assert one.held_out.inside
    assert abs(one.held_out.error) < 0.05
    (ratio, limits), whole = one.speedup(16), found(results())[DDP[1]].speedup(16)[0]
    assert ratio == pytest.approx(whole, rel=0.1)
    assert limits.low < whole < limits.high, "what overlaps is not timed beside ResNet-18, and the band says so"
    assert reasons(with_ddp(results(), "resnet18"), Settings()) == []
    assert {one.model.workload.name for one in forecasts(with_ddp(results(), "lenet"), Settings())} == {"gpt"}


@pytest.mark.parametrize("count", [16, 32])
def test_more_devices_than_there_are(count: int) -> None:
    """With the network that the cluster has between its nodes, within the band that is told."""
    cluster = replace(drawn(None, 101), per_node=8)
    settings = Settings(gbit_per_s=cluster.network * 8 / 1e9, latency_us=1e6 * cluster.network_hop)
    every = found(results(), settings)
    for strategy, scaling in DDP:
        limits = band(every[strategy, scaling].model.seconds(count))
        assert limits.low < true_step(cluster, strategy, count, scaling) < limits.high


def test_measured_nodes_are_used_instead_of_an_assumed_network() -> None:
    four = results(devices=4, nodes=4)
    slow, fast = (found(four, Settings(gbit_per_s=rate)) for rate in (1, 1000))
    for case in DDP:
        held = slow[case].held_out
        assert held is not None
        assert (held.layout.devices, held.layout.nodes) == (16, 4)
        assert abs(held.error) < 0.1
        assert middle(fast[case].model.seconds(64)) == middle(slow[case].model.seconds(64))
        assert not slow[case].assumed(64)


def with_hsdp(of: Results, cluster: Cluster, *, seed: int) -> Results:
    """With HSDP on two and on four nodes, as the events of the cluster say, in place of FSDP's steps there."""
    draw, records = np.random.default_rng(seed), list[Record]()
    for step in of["strategies"].select("step_time", strategy="FSDP parameters"):
        if step.case.get("nodes") in (2, 4) and step.case["devices"] != step.case["nodes"]:
            each = step.integer("batch_size") // step.integer("devices")
            own = [hsdp(cluster, draw, 20, each, step.integer("nodes")).tolist() for _ in step.samples]
            records.append(replace(step, case={**step.case, "strategy": "HSDP"}, samples=own))
    return {**of, "strategies": replace(of["strategies"], records=[*of["strategies"].records, *records])}


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_hsdp_is_forecast_from_collectives_within_and_between_nodes(seed: int) -> None:
    """On four nodes of four devices, from two; with fewer nodes it is FSDP, which exchanges less between them."""
    cluster = replace(drawn(None, seed), per_node=4)
    every = found(with_hsdp(results(devices=4, nodes=4, seed=seed), cluster, seed=seed))
    for scaling in ("strong", "weak"):
        held, model = every["HSDP", scaling].held_out, every["HSDP", scaling].model
        assert held is not None
        assert held.inside
        assert abs(held.error) < 0.1
        assert isinstance(model, DataParallel)
        fsdp = every["FSDP parameters", scaling].model
        assert isinstance(fsdp, DataParallel)
        assert middle(model.exchanged(Layout(4))) == pytest.approx(middle(fsdp.exchanged(Layout(4))))
        assert middle(model.exchanged(Layout(16, 4))) < middle(fsdp.exchanged(Layout(16, 4)))


def test_every_strategy_is_forecast_or_something_of_its_step_is_not_timed_alone() -> None:
    several = [kind for kind in ALL if kind is not SINGLE]
    assert {*MODELS} == {kind for kind in several if not kind.untimed}
    steps = results()["strategies"].select("step_time", strategy="DDP", devices=8, scaling="strong")
    others = [replace(steps[0], case={**steps[0].case, "strategy": kind.name}) for kind in several]
    measured = {"strategies": replace(results()["strategies"], records=[*results()["strategies"].records, *others])}
    assert without_a_model(measured) == [kind for kind in several if kind.untimed]


def test_model_parallelism_takes_as_long_as_one_device_and_handing_over() -> None:
    """All of its devices but one wait at any time: a bubble."""
    single = results()["strategies"].find("step_time", strategy="single device")
    ours = results()["strategies"].select("step_time", strategy="our gpipe", scaling="strong")
    assert single
    samples = [[1.05 * seconds for seconds in run] for run in single.samples]
    made = [replace(step, case={**step.case, "strategy": "model parallel"}, samples=samples) for step in ours]
    strategies = replace(results()["strategies"], records=[*results()["strategies"].records, *made])
    one = found({**results(), "strategies": strategies})["model parallel", "strong"]
    assert one.held_out
    assert one.held_out.forecast == pytest.approx(1.05 * single.median, rel=0.02)
    assert one.held_out.inside
    assert middle(one.model.terms(8)["bubble"]) == pytest.approx(7 / 8 * single.median, rel=0.02)


def test_over_nodes_only_what_uses_all_their_devices_is_fitted() -> None:
    """One device of each of four nodes says nothing of sixteen devices."""
    of_four = results(devices=4, nodes=4)
    layouts = {layout_of(record) for record in of_four["strategies"].select("step_time")}
    assert Layout(4, 4) in layouts
    model = found(of_four)["DDP", "weak"].model
    assert set(model.steps) == {Layout(2), Layout(4), Layout(8, 2), Layout(16, 4)}
    over = model.workload.exchanges(Collective.ALL_REDUCE, over_nodes=True)
    assert {layout_of(record) for record in over} == {Layout(8, 2)}
    within = changed(of_four, "strategies", {"step_time": 0}, strategy="DDP", nodes=None)
    assert set(found(within)["DDP", "weak"].model.steps) == {Layout(8, 2), Layout(16, 4)}, "a node is no smaller for it"


def test_gradients_are_sent_in_as_many_messages_as_their_exchange_was_counted_to_make() -> None:
    cluster = drawn(None, 101)
    volume = found(results())["DDP", "weak"].model.workload.volume
    assert volume == (pytest.approx(cluster.gradient_bytes), len(buckets(cluster)))
    assert volume[1] > 1


def test_cpu_ranks_hide_little_of_what_they_exchange() -> None:
    """Of the same numbers, in which no step says what overlaps."""
    two = results("communication", devices=2)
    on_cpu = {name: replace(r, environment={**r.environment, "emulated": True}) for name, r in two.items()}
    gpus, ranks = (found(of)["DDP", "weak"].model for of in (two, on_cpu))
    assert middle(ranks.terms(2)["exchange"]) > 1.3 * middle(gpus.terms(2)["exchange"])


def test_nodes_with_one_device_each_are_forecast() -> None:
    every = found(results(devices=1, nodes=8))
    for case in DDP:
        held = every[case].held_out
        assert held is not None
        assert (held.layout.devices, held.layout.nodes) == (8, 8)
        assert abs(held.error) < 0.1


@pytest.mark.parametrize(
    ("cause", "scaling", "term"),
    [("communication", "weak", "exchange"), ("small batch", "strong", "smaller batch"),
     ("launching", "strong", "smaller batch"), ("slow rank", "weak", "slowest rank")],
)  # fmt: skip
def test_the_knee_names_what_was_planted(cause: Cause, scaling: str, term: str) -> None:
    one = found(results(cause))["DDP", scaling]
    assert one.knee.devices is not None
    assert one.knee.dominates == term


def test_the_knee_is_where_the_truth_falls_below() -> None:
    """Within a node, so that no network is assumed."""
    one = found(results("small batch"), Settings(devices_per_node=64))["DDP", "strong"]
    cluster = replace(drawn("small batch", 101), per_node=64)
    alone = true_step(cluster, "DDP", 1, "strong")
    truth = {n: alone / n / true_step(cluster, "DDP", n, "strong") for n in (2, 4)}
    assert one.knee.devices is not None
    assert (one.knee.devices < 2) == (truth[2] < 0.8)
    later = found(results("small batch"), Settings(knee=truth[4]))["DDP", "strong"].knee
    assert later.devices == pytest.approx(4, rel=0.1)
    assert later.between.low < 4.2 < 1.2 * later.between.high


@pytest.mark.parametrize("seed", [101, 102, 103])
def test_the_knee_beyond_what_was_measured_is_where_the_truth_is(seed: int) -> None:
    """Of a cluster whose node could have 64 devices: where 16 truly are is within what is told for that efficiency."""
    cluster = replace(drawn(None, seed), per_node=64)
    alone = true_step(cluster, "DDP", 1, "strong", seed=seed)
    truth = alone / 16 / true_step(cluster, "DDP", 16, "strong", seed=seed)
    knee = found(results(seed=seed), Settings(devices_per_node=64, knee=truth))["DDP", "strong"].knee
    assert knee.between.low <= 16 <= knee.between.high
    assert knee.devices == pytest.approx(16, rel=0.25)


def test_a_healthy_cluster_has_no_knee_among_its_devices() -> None:
    one = found(results())["DDP", "weak"]
    assert one.knee.devices is None or one.knee.devices > 8
    assert one.worth_trying[:3] == [2, 4, 8]


def test_strong_scaling_ends_where_devices_have_a_sample_each() -> None:
    every = found(results())
    assert every["DDP", "strong"].counts[-1] == drawn(None, 101).batch
    assert every["DDP", "weak"].counts[-1] == 1024


def test_a_wide_band_is_not_trusted() -> None:
    sure = found(results(), Settings(devices_per_node=1024))["DDP", "weak"].trusted[0]
    doubtful = found(results(), Settings(gbit_per_s=1))["DDP", "weak"]
    assert doubtful.trusted[0] == 8 < sure
    assert "band" in doubtful.trusted[1]


def test_energy_is_that_of_the_devices_that_train() -> None:
    one = found(results())["DDP", "weak"]
    assert one.watts == pytest.approx(WATTS, rel=0.02)
    hours = middle(one.training_seconds(8)) / 3600
    assert one.training_joules(8) == pytest.approx(hours * 3600 * 8 * WATTS, rel=0.02)
    assert middle(one.training_seconds(8)) == pytest.approx(
        one.settings.samples / (8 * drawn(None, 101).batch) * middle(one.model.seconds(8))
    )


def test_a_slow_stage_keeps_a_pipeline_waiting() -> None:
    """Two stages that take 1.5 and 0.5 times the mean, eight micro-batches: 2 + 7 x 1.5 of them, and not 9."""
    model = found(results())["our gpipe", "strong"].model
    assert isinstance(model, Pipeline)
    assert middle(model.stretched(np.full(NUM, 1.5), 2)) == pytest.approx(12.5 / 9)
    planted, healthy = (found(results(c))["our gpipe", "weak"].model for c in ("unbalanced cut", None))  # type: ignore[arg-type]
    waiting = [middle(m.terms(8)["unequal stages"] / m.seconds(8)) for m in (planted, healthy)]
    assert waiting[0] > 0.15 > waiting[1]


def test_terms_add_up_to_the_step() -> None:
    for one in found(results()).values():
        for count in (2, 8):
            total = sum(middle(values) for values in one.model.terms(count).values())
            assert total == pytest.approx(middle(one.model.seconds(count)), rel=0.02)


def test_without_smaller_batches_there_is_a_reason() -> None:
    bare = changed(results(), "strategies", {"local_time": 0})
    assert set(found(bare)) == {("DDP", "weak"), ("FSDP gradients", "weak"), ("FSDP parameters", "weak")}
    nothing = {"strategies": changed(results(), "strategies", {"local_time": 0, "step_time": 0})["strategies"]}
    (finding,) = answer.findings(PlatformResults(nothing))
    assert finding.text.startswith("No forecast: ")
    alone = {"strategies": results()["strategies"]}
    assert {strategy for strategy, _ in found(alone)} == {"our gpipe", "our 1f1b"}
    assert answer.findings(PlatformResults(alone))[-1].text == "DDP is not forecast: no all-reduce was timed."


def test_the_same_results_give_the_same_forecast() -> None:
    """Also in another process, and in whatever order they were computed."""
    before, after = found(results()), found(json_copy(results()))
    for case in reversed(list(before)):
        assert band(after[case].model.seconds(8)) == band(before[case].model.seconds(8))


def json_copy(of: Results) -> dict[str, Result]:
    """With cases whose axes are in another order."""
    again = {}
    for name, result in of.items():
        cases = [json.loads(json.dumps(record.case, sort_keys=True)) for record in result.records]
        again[name] = replace(
            result, records=[replace(r, case=case) for r, case in zip(result.records, cases, strict=True)]
        )
    return again


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert Settings(**CONFIG["forecast"]) == Settings()


def test_the_figure_has_a_panel_per_scaling_and_the_held_out_step() -> None:
    figure = answer.plot(PlatformResults(results()))
    assert [" ".join(axes.get_title(loc="left").split()) for axes in figure.axes] == [
        "gpt, plain SGD in float32, same total batch",
        "gpt, plain SGD in float32, batch grows with the devices",
    ]
    hollow = [line for axes in figure.axes for line in axes.lines if line.get_fillstyle() == "none"]
    assert {line.get_xdata()[0] for line in hollow} == {8}  # type: ignore[index]


def test_a_band_holds_most_draws() -> None:
    one = found(results())["DDP", "weak"].efficiencies[8]
    limits = band(one)
    assert isinstance(limits, Interval)
    assert sum((limits.low <= one) & (one <= limits.high)) >= 0.94 * len(one)
