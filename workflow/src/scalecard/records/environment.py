"""What a result says of the hardware and software that it was measured on, field by field.

None means that the fact could not be read; `missing` says why.
"""

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from scalecard.records.fields import STRICT, FreeText, Natural, NonEmpty, NotNegative, Positive

Precision = Literal["float32", "tf32"]
OfPairs = list[list[Natural | None]]


@with_config(STRICT)
class MachineFacts(TypedDict):
    """What identifies the platform; the fingerprint is a hash of all of it except num_devices."""

    kind: Literal["cuda", "cpu"]
    """cpu: CPU workers and CPU ranks stand in for GPUs."""
    num_devices: Positive
    """Devices that were used."""
    gpus: list[NonEmpty]
    """Names of all visible GPUs."""
    gpu_uuid_hashes: list[NonEmpty]
    """Sorted; empty if the platform is any node of a kind."""
    driver: str | None
    """Version of NVIDIA's driver."""
    cpu: NonEmpty
    """Model name."""
    cores: Positive
    """Cores that the measurement could use."""
    software: str
    """Twelve hex digits of the SHA-256 of docker/requirements.lock."""


@with_config(STRICT)
class GpuFacts(TypedDict):
    """One GPU that was used."""

    name: str
    """As the driver prints it."""
    uuid_hash: str
    """Twelve hex digits of the UUID's SHA-256."""
    memory_bytes: Natural | None
    """Total device memory."""
    pcie_gen: Natural | None
    """PCIe generation when read; an idle card may lower it."""
    pcie_gen_max: Natural | None
    """Highest PCIe generation of card and slot."""
    pcie_width: Natural | None
    """PCIe lanes when read."""
    pcie_width_max: Natural | None
    """Most PCIe lanes of card and slot."""
    nvlinks: Natural | None
    """NVLinks that are up."""
    power_limit_w: NotNegative | None
    """Enforced power limit in watts."""
    power_limit_max_w: NotNegative | None
    """Highest power limit that can be set, in watts."""
    sm_clock_max_mhz: Natural | None
    """Highest SM clock in MHz."""
    memory_clock_max_mhz: Natural | None
    """Highest memory clock in MHz."""
    ecc: bool | None
    """Whether ECC is on."""
    ecc_corrected: Natural | None
    """Corrected ECC errors over the card's life."""
    ecc_uncorrected: Natural | None
    """Uncorrected ECC errors over the card's life."""
    numa_node: int | None
    """NUMA node of the card."""
    cores: str | None
    """Cores next to the card, e.g. 0-31,64; a rank or process that drives it alone runs there."""


@with_config(STRICT)
class Difference(TypedDict):
    """A fact of a node that is another one than the first node's."""

    path: list[str | int]
    """The keys and indices that lead to it."""
    value: str | int | float | bool | None


@with_config(STRICT)
class Node(TypedDict):
    """One node of a job over several."""

    host: str
    """Eight hex digits of the host name's SHA-256."""
    differs: list[Difference]


@with_config(STRICT)
class Environment(TypedDict):
    """Hardware and software, read on the worker that measured."""

    fingerprint: NonEmpty
    """Twelve hex digits of machine."""
    emulated: bool
    """Whether CPU workers and CPU ranks stood in for GPUs."""
    host: NonEmpty
    """Eight hex digits of the host name's SHA-256, salted with a secret of the project's folder."""
    machine: MachineFacts
    gpus: list[GpuFacts]
    """The GPUs that were used, in CUDA's order."""
    topology: OfPairs
    """NVML's common ancestor of each pair of GPUs: 0 same board, 10 one PCIe switch, 20 several switches, 30 host
    bridge, 40 NUMA node, 50 across sockets; null on the diagonal."""
    nvlink_pairs: OfPairs
    """How many NVLinks lead from each GPU to each other one, through NVSwitches all that the GPU has; null on the
    diagonal, and where the driver does not say."""
    ram_bytes: Annotated[int, Field(ge=1)]
    """The host's memory."""
    cpu_governor: str | None
    """Frequency governor of the first core."""
    cgroup_cpu_max: str | None
    """Quota and period in microseconds, or 'max'."""
    cgroup_memory_max: str | None
    """Bytes, or 'max'."""
    python: NonEmpty
    """Version."""
    os: NonEmpty
    """Kernel and release."""
    torch: str | None
    """Version."""
    torchvision: str | None
    """Version."""
    cuda: str | None
    """Version of the CUDA runtime's package."""
    cudnn: str | None
    """Version."""
    nccl: str | None
    """Version."""
    lock: NonEmpty
    """The same as machine.software."""
    container: str | None
    """Digest of the image that it ran in."""
    container_engine: NonEmpty
    """docker, podman, apptainer, kubernetes, or none: the host's environment."""
    packages: NotRequired[str | None]
    """Twelve hex digits of the SHA-256 of container.packages; null: the image has none, absent: before there
    were any."""
    commit: str | None
    """The project's git commit."""
    dirty: bool | None
    """Whether tracked files differed from the commit."""
    float32_products: Precision
    """How GPUs compute products of float32."""
    float32_convolutions: Precision
    """How GPUs compute convolutions of float32."""
    nccl_process_group: Literal["ProcessGroupNCCL", "ProcessGroupNCCL2"] | None
    """Which of PyTorch's process groups NCCL's ranks use; null without GPUs."""
    nccl_paths: dict[str, Annotated[int, Field(ge=1)]]
    """NCCL's channels by the way they go in an untimed start, e.g. NET/IB/GDRDMA or P2P; empty if no ranks have a GPU
    each."""
    nodes: list[Node]
    """Every node of a job over several, the first one first; empty if there is one."""
    missing: dict[str, FreeText]
    """Why a fact is null, by its path."""
