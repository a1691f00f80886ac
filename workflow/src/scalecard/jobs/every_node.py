"""Run a command on every node of this job, with all the cores and GPUs that the job has there.

    python -m scalecard.jobs.every_node --cluster NAME --nodes NUMBER -- command arguments...

In a Slurm job each node gets its own step, because the enclosing step has a single core. The exit status is the first
node's; if another node is lost, the first records it. Without Slurm there is one node, and the command replaces this
process. No torch here: this runs outside the container.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

import psutil

from scalecard.hardware import host

REFUSED = 2  # exit status for bad input: another kind of node, or one in use with `strict`
LINGER = 15  # seconds that the other nodes get to finish once the first has
INTERFACES = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
OF_THE_STEP = ("SLURM_", "SRUN_", "SBATCH_")  # the enclosing one, whose single node would limit a step on several


def main() -> int:
    """Replace this process with the command, or run it through Slurm and return the first node's status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    split = sys.argv.index("--")
    args, command = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    if args.cluster != "slurm":
        assert args.nodes == 1, "config.py refuses more"
        os.execvp(command[0], command)
    node, others = os.environ["SLURMD_NODENAME"], None
    environment = {key: v for key, v in os.environ.items() if not key.startswith(OF_THE_STEP) or key == "SLURM_CONF"}
    if args.nodes > 1:
        with socket.create_server(("", 0)) as free:
            meeting = f"{_address(node)}:{free.getsockname()[1]}"
        environment |= {"SCALECARD_NODES": str(args.nodes), "SCALECARD_RENDEZVOUS": meeting}
        others = subprocess.Popen(_srun(f"--exclude={node}", args.nodes - 1, 1, command), env=environment)
    first = subprocess.Popen(_srun(f"--nodelist={node}", 1, 0, command), env=environment)
    signal.signal(signal.SIGTERM, lambda *_: first.terminate())
    return _wait(first, others)


def _wait(first: "subprocess.Popen[bytes]", others: "subprocess.Popen[bytes] | None") -> int:
    """The first node's status. If another node refuses to measure, end the first and return REFUSED."""
    while first.poll() is None:
        if others and others.poll() == REFUSED:
            first.terminate()
            first.wait()
            return REFUSED
        time.sleep(0.2)
    if others:
        try:
            others.wait(LINGER)
        except subprocess.TimeoutExpired:
            others.terminate()
    return first.returncode


def _srun(where: str, num_nodes: int, first: int, command: Sequence[str]) -> list[str]:
    """A step on nodes of this job, numbered from `first`; a node that fails does not end the others."""
    return [
        *("srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--overlap", where, "--cpu-bind=none"),
        *("--kill-on-bad-exit=0", "--no-kill"),
        *(f"--nodes={num_nodes}", f"--ntasks={num_nodes}", "--ntasks-per-node=1", "--input=none"),
        *("sh", "-c", f'SCALECARD_NODE=$((SLURM_PROCID + {first})) exec "$@"', "sh", *command),
    ]


def _address(node: str) -> str:
    """This node's address on the interface that the user chose, else on the route to the job's other nodes."""
    addresses = psutil.net_if_addrs()
    for name in (os.environ.get(variable, "") for variable in INTERFACES):
        for address in addresses.get(name, []):
            if address.family == socket.AF_INET:
                return address.address
    hosts = _output_of("squeue", "--noheader", f"--jobs={os.environ['SLURM_JOB_ID']}", "--format=%N")
    other = next(name for name in _output_of("scontrol", "show", "hostnames", hosts).split() if name != node)
    facts = dict(word.split("=", 1) for word in _output_of("scontrol", "show", "node", other).split() if "=" in word)
    return host.address_towards(facts["NodeAddr"])


def _output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
