"""On simulated clusters of eight GPUs with one planted fault, the answers are the true ones."""

import numpy as np
import pytest
from scalecard.analysis import breakdown
from scalecard.analysis.platforms import PlatformResults
from scalecard.analysis.strategy_choice import choose, strategy_runs
from scalecard.report.answers import use, why
from support.simulated_clusters import WORKLOAD, Cause, drawn, simulated, true_step

SEEDS = (1, 2)
BLAMED = {
    "communication": ("DDP", breakdown.EXPOSED),
    "slow rank": ("DDP", breakdown.SLOWEST),
    "small batch": ("DDP", breakdown.SMALLER),
    "launching": ("DDP", breakdown.LAUNCHING),
    "loader": ("DDP", breakdown.INPUT),
    "unbalanced cut": ("our 1f1b", breakdown.UNEVEN),
}


def of(measured: PlatformResults, strategy: str) -> breakdown.Breakdown:
    """With the batch of one device shared by all eight."""
    (found,) = [
        each
        for each in breakdown.of_strategies(measured)
        if each.run.step.matches(strategy=strategy, devices=8, scaling="strong")
    ]
    return found


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", BLAMED)
def test_the_planted_cause_is_blamed_and_the_step_is_explained(cause: Cause, seed: int) -> None:
    strategy, term = BLAMED[cause]
    found, healthy = (of(PlatformResults(simulated(8, cause=of_it, seed=seed)), strategy) for of_it in (cause, None))
    assert found.largest.name == term
    grown = {each.name: each.seconds - healthy.of(each.name) for each in found.terms if each.name != breakdown.COMPUTE}
    assert max(grown, key=lambda name: grown[name]) == term
    assert max(value for name, value in grown.items() if name != term) < grown[term] / 3, "no other is blamed"
    assert found.explained


@pytest.mark.parametrize("seed", SEEDS)
def test_where_nothing_is_planted_no_term_is_large(seed: int) -> None:
    found = of(PlatformResults(simulated(8, seed=seed)), "DDP")
    assert found.largest.seconds < 0.2 * found.seconds
    assert found.explained


@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_rank_is_named(seed: int) -> None:
    told = why.findings(PlatformResults(simulated(8, cause="slow rank", seed=seed)))
    assert any("always rank 1" in finding.text for finding in told)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("cause", [None, "communication"])
def test_what_is_recommended_is_what_is_truly_the_fastest(cause: Cause | None, seed: int) -> None:
    """Or takes at most 2 % longer than that."""
    results = simulated(8, cause=cause, seed=seed)
    choice = choose(strategy_runs(results["strategies"], WORKLOAD), "strong")
    assert choice
    cluster = drawn(cause, seed)
    one = float(np.median(cluster.alone(np.random.default_rng(0), 200, cluster.batch)))
    truth = {("single device", 1): one}
    for strategy in ("DDP", "FSDP gradients", "FSDP parameters", "our gpipe", "our 1f1b"):
        truth |= {(strategy, n): true_step(cluster, strategy, n, "strong", seed=seed) for n in (2, 4, 8)}
    assert truth[choice.best.strategy, choice.best.devices] <= 1.02 * min(truth.values())
    assert choice.best.strategy in use.findings(PlatformResults(results))[0].text
