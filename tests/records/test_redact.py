"""Notes and warnings name nobody's folders, hosts, addresses or names, and keep what they say."""

import platform

import pytest
from scalecard.records import fields as module
from scalecard.records.fields import anonymous


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[Errno 2] No such file or directory: '/home/alice/my data/x.txt'",
            "[Errno 2] No such file or directory: '[path]'",
        ),
        ("see ~/.nccl.conf, ~bob/x and /etc/nccl.conf.", "see [path], [path] and [path]"),
        ("http://me:secret@proxy:3128/x does not answer", "[address] does not answer"),
        ("cannot reach 10.0.0.17: refused", "cannot reach [address]: refused"),
        ("fe80::1ff:fe23:4567:890a, ::1 or 00:1a:2b:3c:4d:5e", "[address], [address] or [address]"),
        ("trying to connect to (node17, 29500).", "trying to connect to ([host], 29500)."),
        ("node17.cluster.org:29500 closed", "[host]:29500 closed"),
        ("a\n  b", "a b"),
    ],
)
def test_what_tells_who_or_where_is_hidden(text: str, told: str) -> None:
    assert anonymous(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "12 samples/s, 3 GB/s, I/O at results/box/ddp.json, 1/2",
        "NCCL 2.30.7 at 12:30:45, GPU 0000:3b:00.0, cuda:1",
        "ProcessGroupNCCL.cpp:2100: c10::Error std::exception",
        "no /dev/nvidia0; /sys/fs/cgroup/cpu.max: No such file or directory; /proc/cpuinfo",
        "GPU 0 was busy: other processes used 3 GiB of its memory",
    ],
)
def test_what_tells_nothing_stays(text: str) -> None:
    assert anonymous(text) == text


def test_this_host_this_user_and_the_nodes_of_a_job_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "box7.example.org")
    monkeypatch.setenv("LOGNAME", "alice")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[01-04],login")
    for found in (module._hosts, module._user):
        found.cache_clear()
    try:
        said = anonymous("alice on box7, box7.example.org, gpu03 and login: malice, GPU 03")
        assert said == "[user] on [host], [host], [host] and [host]: malice, GPU 03"
    finally:
        for found in (module._hosts, module._user):
            found.cache_clear()
