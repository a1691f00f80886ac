"""What forecasts are made of, against numbers worked out by hand."""

import numpy as np
import pytest
from scalecard.analysis.forecast.fitted_terms import NUM, LocalTime, Ranks, Seen, line, middle, overlap
from scalecard.analysis.forecast.network import Exchange, Fitted, Layout, Network
from scalecard.records.record import Record
from support.builders import timed

SIZES = [2**k for k in range(12, 28, 2)]
NETWORK = Network(gbit_per_s=80, latency_us=10)


def all_reduces(devices: int, *, latency: float = 2e-5, rate: float = 1e11, spoilt: int | None = None) -> list[Record]:
    """Exact times of 2 (n - 1)/n bytes at a rate; `spoilt` is a size that took ten times as long."""

    def one(size: int) -> Record:
        seconds = latency + 2 * (devices - 1) / devices * size / rate
        return timed([seconds * (10 if size == spoilt else 1)] * 12, devices=devices, bytes=size)

    return [one(size) for size in SIZES]


def test_a_fit_finds_latency_and_rate() -> None:
    fitted = Fitted.of(all_reduces(4), 2)
    assert middle(fitted.latency) == pytest.approx(2e-5, rel=0.02)
    assert middle(fitted.rate) == pytest.approx(1e11, rel=0.02)


def test_one_odd_size_hardly_moves_a_fit() -> None:
    fitted = Fitted.of(all_reduces(4, spoilt=SIZES[4]), 2)
    assert middle(fitted.rate) == pytest.approx(1e11, rel=0.05)
    assert middle(fitted.factor(SIZES[4])) == pytest.approx(10, rel=0.1)
    assert middle(fitted.factor(SIZES[1])) == pytest.approx(1, rel=0.1)


def test_a_size_that_two_experiments_timed_is_one_size() -> None:
    once, twice = Fitted.of(all_reduces(4), 2), Fitted.of([*all_reduces(4), *all_reduces(4, latency=4e-5)[:1]], 2)
    assert len(twice.sizes) == len(once.sizes)
    assert middle(twice.factor(SIZES[0])) == pytest.approx(2**0.5, rel=0.1)


def test_of_nodes_with_one_device_each_the_network_is_enough() -> None:
    size, over = 2.0**26, {2: Fitted.of(all_reduces(2, rate=1e10), 2)}
    alone = Exchange(2, {}, over, 1, NETWORK)
    assert alone.known
    assert not Exchange(2, {}, over, 8, NETWORK).known, "within a node nothing was timed"
    assert middle(alone.seconds(size, Layout(4, 4))) == pytest.approx(1.5 * size / 1e10, rel=0.15)


def exchange(*counts: int, per_node: int = 8) -> Exchange:
    fits = {count: Fitted.of(all_reduces(count), 2) for count in counts}
    return Exchange(2, fits, {}, per_node, NETWORK)


def test_more_devices_of_a_node_send_more_at_the_same_rate() -> None:
    """Of 64 MiB, what counts is 2 (n - 1)/n bytes over the rate: 7/4 times 2's on 8."""
    size = 2.0**26
    seconds = exchange(2, 4).seconds(size, Layout(8))
    assert middle(seconds) == pytest.approx(2e-5 + 1.75 * size / 1e11, rel=0.1)
    assert not exchange(2).seconds(size, Layout(1)).any()


def test_between_nodes_the_network_is_the_limit() -> None:
    """80 Gbit/s are 10 GB/s, of which 75 to 95 % reach the ring; every byte passes it 2 (n - 1)/n times."""
    size = 2.0**26
    seconds = exchange(2, 4).seconds(size, Layout(16, 2))
    wire = 2 * 15 / 16 * size
    assert wire / 0.95e10 < seconds.min() < middle(seconds) < 1.1 * wire / 0.75e10


def test_latency_between_nodes_grows_as_over_a_tree_or_slower_than_a_ring() -> None:
    more = exchange(2, 4).seconds(8.0, Layout(64, 8)) - exchange(2, 4).seconds(8.0, Layout(8))
    assert more.min() > 1.9 * 3 * 10e-6
    assert more.max() < 2 * 7 * 10e-6


def local(**times: float) -> LocalTime:
    return LocalTime.of({int(b[1:]): timed([t] * 12, metric="local_time") for b, t in times.items()})


def test_a_batch_between_two_takes_what_lies_between() -> None:
    found = local(b2=1.0, b4=1.5, b8=2.5)
    assert middle(found.at(6)) == pytest.approx(2.0, rel=0.01)
    assert middle(found.at(16)) == pytest.approx(4.5, rel=0.02)
    assert middle(found.at(1)) == pytest.approx(0.9, rel=0.02)  # 0.75 on the line: nothing says that it falls so far
    assert np.isnan(local(b8=1.0).at(4)).all()


def ranks(*factors: float, jitter: float = 0.0, steps: int = 200) -> Ranks:
    draw = np.random.default_rng(0)
    made = [f * (1 + jitter * draw.standard_normal(steps)) for f in factors]
    return Ranks.of([timed(list(values), metric="rank_time", rank=rank) for rank, values in enumerate(made)])


def test_the_slowest_of_many_alike_grows_as_the_largest_of_draws() -> None:
    """The expected largest of 2, 10 and 100 standard normal values: 0.564, 1.539, 2.508."""
    found = ranks(1, 1, 1, 1, jitter=0.01, steps=4000)
    for count, expected in ((2, 0.564), (10, 1.539), (100, 2.508)):
        assert middle(found.slowest(count)) == pytest.approx(1 + 0.01 * expected, abs=1e-3)


def test_the_slowest_keeps_growing_beyond_what_was_measured() -> None:
    few = ranks(1, 1, jitter=0.01, steps=20)
    assert middle(few.slowest(40)) < middle(few.slowest(400)) < middle(few.slowest(1000)) < 1.06


def test_a_slow_device_stays_slow_and_one_that_was_timed_alone_is_the_measure() -> None:
    assert middle(ranks(1, 1.3, 1, 1).slowest(2)) == pytest.approx(1.3)
    assert middle(ranks(1, 1.3, 1, 1).slowest(8)) == pytest.approx(1.3)
    assert middle(ranks(1.3, 1, 1, 1).slowest(4)) == pytest.approx(1.0)
    assert middle(Ranks.of([]).slowest(64)) == 1.0


def waits(step: float, *, computes: float = 1.0, exchanges: float = 0.2) -> Seen:
    return Seen(step, computes, exchanges, 0.002)


def test_what_was_seen_to_overlap_overlaps_elsewhere() -> None:
    """Hidden wholly in a step of one second, 0.2 s still are; with nothing to hide behind, they are not."""
    hidden = overlap([waits(1.001), waits(2.001, computes=2.0)], extra=0.01, name="hidden")
    exposed = overlap([waits(1.25), waits(2.25, computes=2.0)], extra=0.01, name="exposed")
    ones = np.ones(NUM)
    assert middle(hidden.waits(ones, 0.2 * ones)) < 0.02
    assert middle(exposed.waits(ones, 0.2 * ones)) > 0.2
    assert middle(hidden.waits(0.01 * ones, 0.2 * ones)) > 0.15


def test_a_line_follows_what_was_seen_and_its_prior_where_nothing_was() -> None:
    x, prior = np.array([0.0, 1.0, 2.0]), ((0.0, 1.0), (5.0, 1.0))
    seen = line(x, 3 + 2 * x, np.full(3, 1e-3), prior, "seen")
    assert seen.mean(axis=0) == pytest.approx([3, 2], abs=0.01)
    unseen = line(np.zeros(0), np.zeros(0), np.zeros(0), prior, "unseen")
    assert unseen.mean(axis=0) == pytest.approx([0, 5], abs=0.2)
    assert unseen.std(axis=0) == pytest.approx([1, 1], abs=0.1)


def test_what_was_not_seen_is_not_known() -> None:
    ones = np.ones(NUM)
    unseen, seen = (overlap(of, extra=0.01, name="x").waits(ones, ones) for of in ([], [waits(1.8, exchanges=1.0)]))
    assert np.std(unseen) > 3 * np.std(seen)
