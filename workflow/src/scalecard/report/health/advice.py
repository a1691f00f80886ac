"""What to look at for each kind of trouble, in the order in which it is cheapest to look."""

ADVICE = {
    "lost": "look for an XID in `dmesg`, then power-cycle the machine; if it stays away, reseat the card, or return it",
    "device fault": "look for its XID in `dmesg`; reset the GPU (`nvidia-smi --gpu-reset`) or power-cycle the machine;"
    " return the card if it comes back",
    "wrong values": "do not train on it; measure again, at its default clocks and power limit, then run NVIDIA's `dcgmi"
    " diag -r 3`; return the card if it comes back",
    "failed": "the note and the log (results/logs) say which process failed and how; run it again, and look at `dmesg`"
    " for what the kernel killed",
    "XID": "look the number up in NVIDIA's list of XIDs (`dmesg | grep -i xid`); drain the machine and reset the GPU",
    "memory errors": "`nvidia-smi -q -d ECC,ROW_REMAPPER`; reset the GPU if a remap is pending; return the card if"
    " uncorrected errors come back",
    "slowed down": "clean fans and filters, check the airflow, the inlet's temperature and the power cables;"
    " `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER` says what holds it back",
    "slot width": "reseat the card, check its riser and cables, and the slot's width or bifurcation in the BIOS",
    "slot generation": "check the riser and its cables, and set the slot's generation (or Auto) in the BIOS",
    "NVLinks down": "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e`; reseat the bridge or the GPU's baseboard;"
    " with NVSwitches check nvidia-fabricmanager's log",
    "NVLink errors": "`nvidia-smi nvlink -e`; reseat the bridge or the GPU's baseboard; look at the fabric manager's"
    " log",
    "PCIe errors": "reseat the card, check its riser and cables; look for AER messages in `dmesg`",
    "compute": "compare clocks, temperature and power limit with the others' (`nvidia-smi -q -d CLOCK,POWER`), look for"
    " other processes, then at cooling and power",
    "memory": "`nvidia-smi -q -d ECC,ROW_REMAPPER,CLOCK`: errors, and the memory's clock; look for other processes",
    "host link": "`nvidia-smi -q -d PCIE` under load: generation and width; then the riser, the BIOS slot's width, and"
    " whether the process ran on the GPU's NUMA node",
    "device links": "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e`; nvidia-fabricmanager's log; reseat the GPU",
    "pair": "`nvidia-smi nvlink -s` and `nvidia-smi nvlink -e` on both GPUs; reseat the bridge or the GPUs; with"
    " NVSwitches look at nvidia-fabricmanager",
    "PCIe pair": "whether ACS or the IOMMU sends peers' traffic through the CPU (`lspci -vvv | grep ACSCtl`; BIOS), and"
    " NCCL_P2P_LEVEL",
    "peer access": "`nvidia-smi topo -p2p r`; turn ACS or the IOMMU off for these GPUs, start nvidia-fabricmanager, and"
    " look at NCCL_P2P_DISABLE and NCCL_P2P_LEVEL",
    "latency": "which NUMA node the process ran on, the CPU's governor, and ACS or the IOMMU",
    "collective": "NCCL_DEBUG=INFO for the paths that NCCL chose; NCCL_ALGO, NCCL_P2P_LEVEL and other NCCL variables"
    " that are set",
    "PCIe collective": "NCCL_DEBUG=INFO for the paths that NCCL chose; whether ACS or the IOMMU keeps GPUs from writing"
    " to one another; NCCL_P2P_LEVEL",
    "shared memory": "NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, ACS and the IOMMU, and whether the container shares its"
    " processes' memory (--ipc=host)",
    "socket": "install libibverbs, pass /dev/infiniband into the container, unset NCCL_IB_DISABLE, and look at"
    " NCCL_IB_HCA and NCCL_SOCKET_IFNAME",
    "no GPUDirect": "load nvidia_peermem (or use the open kernel modules), and look at ACS and NCCL_NET_GDR_LEVEL",
    "adapter errors": "clean or replace the cable and its transceiver; `ibqueryerrors`, `mlxlink -d DEVICE -c`",
    "adapter rate": "`ibstat` there and the switch's port: the cable, its transceiver, and the speed that is set",
    "node": "run ScaleCard's health on that node alone: its GPUs, its links, then NCCL's environment there",
    "node links": "that node's cables and adapters: `ibstat`, `ibqueryerrors`, `mlxlink`; then its PCIe slots for them",
    "node pair": "the way between the two: cables, the switches' ports, routing (`ibtracert`)",
    "storage": "whether other jobs read from it; `iostat -x`; the mount's options",
    "free space": "`df -h` on that file system, and what filled it; results that cannot be saved are kept elsewhere",
    "host memory": "whether every channel has its modules, and the BIOS's memory speed and NUMA settings",
}


def for_kind(kind: str) -> str:
    """One sentence without its full stop; KeyError for a kind that has no advice."""
    return ADVICE[kind]
