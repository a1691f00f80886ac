"""Hosts that are network namespaces of this machine, with a cable between them. Needs root and iproute2."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

ADDRESSES = ("10.213.7.1", "10.213.7.2")
PREFIX = "scalecard-"
# Tests of two groups run side by side: each process has names of its own.
HOSTS = (f"{PREFIX}a-{os.getpid()}", f"{PREFIX}b-{os.getpid()}")
NEEDS = "needs root, iproute2 and network namespaces"


def can_make_namespaces() -> bool:
    """Try it."""
    if os.getuid() or not shutil.which("ip"):
        return False
    made = subprocess.run(["ip", "netns", "add", HOSTS[0]], capture_output=True)
    subprocess.run(["ip", "netns", "del", HOSTS[0]], capture_output=True)
    return made.returncode == 0


def _remove_those_of_dead_processes() -> None:
    """A run that was killed leaves its namespaces behind."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    for name in (line.split()[0] for line in listed.splitlines() if line.startswith(PREFIX)):
        *_, pid = name.split("-")
        if not (pid.isdigit() and psutil.pid_exists(int(pid))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two namespaces, wan0 in one connected to wan0 in the other; neither has another way out."""
    _remove_those_of_dead_processes()
    for host in HOSTS:
        subprocess.run(["ip", "netns", "add", host], check=True)
    pair = ["ip", "link", "add", "wan0", "netns", HOSTS[0], "type", "veth", "peer", "name", "wan0", "netns", HOSTS[1]]
    subprocess.run(pair, check=True)
    for host, address in zip(HOSTS, ADDRESSES, strict=True):
        for command in (f"addr add {address}/24 dev wan0", "link set wan0 up", "link set lo up"):
            subprocess.run(["ip", "-netns", host, *command.split()], check=True)
    try:
        yield HOSTS
    finally:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "del", host], check=True)


def on_host(index: int, command: list[str]) -> list[str]:
    """The command, to be run on one of the two."""
    return ["ip", "netns", "exec", HOSTS[index], *command]
