"""Run a command on every node of this job, with all the cores and GPUs that the job has there.

    python -m scalecard.jobs.every_node --cluster NAME --nodes NUMBER [--hosts HOST...] -- command arguments...

In a Slurm job each node gets its own step, because the enclosing step has a single core. Without a scheduler the first
node is this machine, and ssh starts the command on the hosts. The exit status is the first node's; if another node is
lost, the first records it. On one node without Slurm, the command replaces this process. No torch here: this runs
outside the container.
"""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import psutil

from scalecard.hardware import host

REFUSED = 2  # exit status for bad input: another kind of node, or one in use with `strict`
LINGER = 15  # seconds that the other nodes get to finish once the first has
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
# Handed on by ssh, with what a container would get. Nothing else is: every user of a machine sees its command lines.
OF_PROGRAMS = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONNOUSERSITE")
SSH_OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "LogLevel=ERROR")
OF_THE_STEP = ("SLURM_", "SRUN_", "SBATCH_")  # the enclosing one, whose single node would limit a step on several


def main() -> int:
    """Replace this process with the command, or start it on every node and return the first one's status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--hosts", nargs="*", default=[], help="the other nodes, if there is no cluster")
    split = sys.argv.index("--")
    args, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    slurm = args.cluster == "slurm"
    if not slurm and args.nodes == 1:
        os.execvp(command[0], command)
    assert slurm or args.nodes == 1 + len(args.hosts), "config.py refuses others"
    environment = {key: v for key, v in os.environ.items() if not key.startswith(OF_THE_STEP) or key == "SLURM_CONF"}
    if args.nodes > 1:
        try:
            peer, *_ = [_slurm_peer()] if slurm else map(_ssh_peer, args.hosts)
        except OSError as error:
            print(f"error: {error}", file=sys.stderr)
            return REFUSED
        with socket.create_server(("", 0)) as free:
            meeting = f"{_address(peer)}:{free.getsockname()[1]}"
        environment |= {"SCALECARD_NODES": str(args.nodes), "SCALECARD_RENDEZVOUS": meeting}
    commands = by_slurm(args.nodes, command) if slurm else by_ssh(args.hosts, command, environment)
    others = [subprocess.Popen(each, env=environment, stdin=subprocess.DEVNULL) for each in commands[1:]]
    first = subprocess.Popen(commands[0], env=environment)
    signal.signal(signal.SIGTERM, lambda *_: first.terminate())
    signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to the first node's command, too
    return _wait(first, others)


def _wait(first: "subprocess.Popen[bytes]", others: "Sequence[subprocess.Popen[bytes]]") -> int:
    """The first node's status. If another node refuses to measure, end the first and return REFUSED."""
    refused = False
    while first.poll() is None:
        refused = REFUSED in [other.poll() for other in others]
        if refused:
            first.terminate()
            first.wait()
            print("error: another node refuses to measure, for the reason above", file=sys.stderr)
        time.sleep(0.2)
    deadline = time.monotonic() + LINGER
    for other in others:
        try:
            other.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            other.terminate()
    return REFUSED if refused else first.returncode


def by_slurm(num_nodes: int, command: Sequence[str]) -> list[list[str]]:
    """What starts the command on this node of the job, and on all of its others."""
    node = os.environ["SLURMD_NODENAME"]
    others = [_srun(f"--exclude={node}", num_nodes - 1, 1, command)] if num_nodes > 1 else []
    return [_srun(f"--nodelist={node}", 1, 0, command), *others]


def _srun(where: str, num_nodes: int, first: int, command: Sequence[str]) -> list[str]:
    """A step on nodes of this job, numbered from `first`; a node that fails does not end the others."""
    return [
        *("srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--overlap", where, "--cpu-bind=none"),
        *("--kill-on-bad-exit=0", "--no-kill"),
        *(f"--nodes={num_nodes}", f"--ntasks={num_nodes}", "--ntasks-per-node=1", "--input=none"),
        *("sh", "-c", f'SCALECARD_NODE=$((SLURM_PROCID + {first})) exec "$@"', "sh", *command),
    ]


def _slurm_peer() -> str:
    """The address of another node of this job."""
    hosts = _output_of("squeue", "--noheader", f"--jobs={os.environ['SLURM_JOB_ID']}", "--format=%N")
    names = _output_of("scontrol", "show", "hostnames", hosts).split()
    other = next(name for name in names if name != os.environ["SLURMD_NODENAME"])
    facts = dict(word.split("=", 1) for word in _output_of("scontrol", "show", "node", other).split() if "=" in word)
    return facts["NodeAddr"]


def by_ssh(hosts: Sequence[str], command: Sequence[str], environment: Mapping[str, str]) -> list[list[str]]:
    """What starts the command here, and on each of the hosts: in this folder, with the same Python and settings.

    The terminal (-tt) ends the command there, by SIGHUP, when ssh ends here.
    """
    from scalecard.jobs.containers.inside import allowed  # half a second, and only for several nodes

    handed_on = allowed(environment, online=True) | {key: environment[key] for key in OF_PROGRAMS if key in environment}
    commands = [["env", "SCALECARD_NODE=0", *command]]
    for number, name in enumerate(hosts, 1):
        variables = [f"{key}={value}" for key, value in (handed_on | {"SCALECARD_NODE": str(number)}).items()]
        there = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['env', *variables, *command])}"
        commands.append([*_ssh(), "-tt", *SSH_OPTIONS, name, there])
    return commands


def _ssh() -> list[str]:
    return shlex.split(os.environ.get("SCALECARD_SSH") or "ssh")


def _ssh_peer(name: str) -> str:
    """The address of a host, as ssh's configuration has it. OSError says why the host cannot be used."""
    there = f"cd {shlex.quote(os.getcwd())} && test -x {shlex.quote(sys.executable)}"
    asked = [*_ssh(), *SSH_OPTIONS, name, there]
    done = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"{sys.executable} is not there"])[-1].strip()
    else:
        facts = dict(line.split(" ", 1) for line in _output_of(*_ssh(), "-G", name).splitlines() if " " in line)
        try:
            address = socket.gethostbyname(facts["hostname"])
            if address != host.address_towards(address):
                return address
            why = "this machine itself"
        except socket.gaierror:
            why = f"{facts['hostname']} has no address here"
    raise OSError(
        f"config.yaml: hosts = {name}: {why}; accepted: other machines that ssh reaches without a password and that"
        " share this folder, with its environment, at the same path"
    )


def _address(peer: str) -> str:
    """This node's address on the interface that the user chose, else on the route to another node."""
    addresses = psutil.net_if_addrs()
    for name in (os.environ.get(variable, "") for variable in INTERFACES):
        for address in addresses.get(name, []):
            if address.family == socket.AF_INET:
                return address.address
    return host.address_towards(peer)


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
