"""What the experiments' values may be: as large as any machine could measure, and no larger."""

import pytest
from scalecard import experiments
from support.blocks import block


def test_a_tebibyte_may_be_sent_and_two_may_not() -> None:
    experiments.build("allreduce", block("allreduce", bytes=[4096, 2**40]))
    with pytest.raises(ValueError, match=rf"experiments\.allreduce\.bytes\.0 = {2**41}: "):
        experiments.build("allreduce", block("allreduce", bytes=[2**41]))


def test_batches_may_have_a_hundred_thousand_samples_and_no_more() -> None:
    experiments.build("hybrid", block("hybrid", batch_size=100_000))
    with pytest.raises(ValueError, match=r"experiments\.hybrid\.batch_size = 100001: "):
        experiments.build("hybrid", block("hybrid", batch_size=100_001))


def test_a_learning_rate_may_be_a_hundred_and_no_more() -> None:
    experiments.build("dp_scratch", block("dp_scratch", lr=100))
    with pytest.raises(ValueError, match=r"experiments\.dp_scratch\.lr = 101: "):
        experiments.build("dp_scratch", block("dp_scratch", lr=101))


def test_a_seed_leaves_room_for_the_numbers_of_ranks() -> None:
    experiments.build("dp_scratch", block("dp_scratch", seed=2**63 - 100_001))
    with pytest.raises(ValueError, match=r"seed = 9223372036854675808: "):
        experiments.build("dp_scratch", block("dp_scratch", seed=2**63 - 100_000))
