# ruff: noqa: N802 - the names are those of the library it stands in for
"""A stand-in for pynvml with the answers of known machines. Constants and exceptions are pynvml's own.

Answers are those that nvidia-smi prints on such boards: a GTX 1080 Ti has no ECC, no NVLink and no energy counter.
"""

import copy
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30
SWITCH = "switch"
Handle = int | tuple[int, int]


@dataclass
class Board:
    """One GPU's answers; None makes the question unsupported."""

    name: str
    memory: int
    pcie: tuple[int, int] = (4, 4)  # generation now and at most
    width: tuple[int, int] = (16, 16)
    nvlinks: int = 0
    leads_to: "list[int | str | None] | None" = None  # a card for each NVLink, or SWITCH; None: all to switches
    exclusive: bool = False
    power_limit: int = 400_000
    clock: int = 1980
    ecc: bool | None = True
    energy: bool = True
    reasons: int = 0
    utilisation: int = 0
    processes: list[tuple[int, int]] = field(default_factory=list)  # (pid, bytes)
    graphics: list[tuple[int, int]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)  # of processes, by pid
    uuid: str = ""
    slices: "list[Board] | None" = None  # None: it has no MIG mode
    errors: dict[str, int] = field(default_factory=dict)  # by the counters' names; an NVLink's are those of each link


H100 = Board("NVIDIA H100 80GB HBM3", 80 * GIB, (5, 5), nvlinks=18, power_limit=700_000)
A100 = Board("NVIDIA A100-SXM4-40GB", 40 * GIB, (4, 4), nvlinks=12, clock=1410)
OF_AN_H100 = (
    "ECC corrected",
    "ECC uncorrected",
    "rows remapped",
    "PCIe replays",
    "NVLink replays",
    "NVLink CRC errors",
)
GTX = Board("NVIDIA GeForce GTX 1080 Ti", 11 * GIB, (3, 3), power_limit=250_000, clock=1911, ecc=None, energy=False)


def cut(board: Board, *profiles: str) -> Board:
    """The board in MIG mode, with a slice of an eighth of its memory per profile."""
    names = [f"{board.name} MIG {profile}" for profile in profiles]
    parts = [Board(name, board.memory // 8, uuid=f"MIG-{index}-{board.uuid}") for index, name in enumerate(names)]
    return replace(board, slices=parts)


def box(board: Board, count: int) -> list[Board]:
    boards = [copy.deepcopy(board) for _ in range(count)]
    for index, own in enumerate(boards):
        own.uuid = f"GPU-{board.name.split()[1].lower()}-{index}"
    return boards


def linked(board: Board, pairs: list[list[int]]) -> list[Board]:
    """A box whose boards have this many NVLinks to one another, without switches."""
    boards = box(board, len(pairs))
    for own, links in zip(boards, pairs, strict=True):
        own.leads_to = [other for other, count in enumerate(links) for _ in range(count)]
        own.nvlinks = len(own.leads_to)
    return boards


class FakeNvml:
    """`boards` may be changed while it is in use; None is a card that has fallen off the bus.

    `fail_after` questions about boards, every further one fails. `broken` is the error with which the driver answers.
    A handle is a card's index or, for a slice, its card's and its own.
    """

    def __init__(
        self, boards: list[Any], driver: str = "580.65.06", fail_after: int | None = None, broken: int | None = None
    ) -> None:
        self.boards, self.driver, self.left, self.broken, self.millijoules = boards, driver, fail_after, broken, 0
        self.xids: list[int] = []  # the cards that had one, as far as nobody has asked
        self.freed = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:
        if self.broken:
            raise pynvml.NVMLError(self.broken)
        if not self.boards:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return self.driver

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 13000 if int(self.driver.split(".")[0]) >= 580 else 12080

    def nvmlDeviceGetCount(self) -> int:
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Handle:
        for index, board in enumerate(self.boards):
            if board and board.uuid == uuid:
                return index
            for part, own in enumerate(board.slices or [] if board else []):
                if own.uuid == uuid:
                    return index, part
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetName(self, handle: Handle) -> str:
        return self._at(handle).name

    def nvmlDeviceGetUUID(self, handle: Handle) -> str:
        return self._at(handle).uuid

    def nvmlDeviceGetMigMode(self, handle: Handle) -> list[int]:
        slices = self._at(handle).slices
        if slices is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [1, 1]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Handle) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: int, index: int) -> Handle:
        if index >= len(self._at(handle).slices or []):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return handle, index

    def _at(self, handle: Handle) -> Board:
        board = self.boards[handle if isinstance(handle, int) else handle[0]]
        if not board:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return board if isinstance(handle, int) else (board.slices or [])[handle[1]]

    def _board(self, handle: Handle) -> Board:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self._at(handle)

    @staticmethod
    def _supported(value: Any) -> Any:
        if value is None or value is False:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return value

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(total=self._board(handle).memory)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: int) -> int:
        return self._board(handle).power_limit

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: int) -> list[int]:
        return [100_000, self._board(handle).power_limit]

    def nvmlDeviceGetEccMode(self, handle: int) -> list[int]:
        return [int(self._supported(self._board(handle).ecc))] * 2

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        self._supported(self._board(handle).ecc)
        corrected = kind == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        return self._board(handle).errors.get(f"ECC {'' if corrected else 'un'}corrected", 0)

    def nvmlDeviceGetRemappedRows(self, handle: int) -> list[int]:
        """By corrected errors, by uncorrected ones, whether one is pending, and whether one failed."""
        self._supported(self._board(handle).ecc)
        return [self._board(handle).errors.get("rows remapped", 0), 0, 0, 0]

    def nvmlDeviceGetPcieReplayCounter(self, handle: int) -> int:
        return self._board(handle).errors.get("PCIe replays", 0)

    def nvmlDeviceGetNvLinkErrorCounter(self, handle: int, link: int, counter: int) -> int:
        replays = counter == pynvml.NVML_NVLINK_ERROR_DL_REPLAY
        return self._board(handle).errors.get("NVLink replays" if replays else "NVLink CRC errors", 0)

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlEventSetFree(self, events: str) -> None:
        self.freed = events

    def nvmlDeviceRegisterEvents(self, handle: int, kind: int, events: str) -> None:
        """Cards without ECC do not tell of XIDs here."""
        assert kind == pynvml.nvmlEventTypeXidCriticalError
        self._supported(self._board(handle).ecc)

    def nvmlEventSetWait_v2(self, events: str, milliseconds: int) -> Any:
        if not self.xids:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        return SimpleNamespace(device=self.xids.pop(0))

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: int) -> int:
        return self._board(handle).pcie[0]

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: int) -> int:
        return self._board(handle).pcie[1]

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return self._board(handle).width[0]

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: int) -> int:
        return self._board(handle).width[1]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link >= self._board(handle).nvlinks:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return pynvml.NVML_FEATURE_ENABLED

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:
        end = self._end(handle, link)
        kinds = {SWITCH: pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, None: pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN}
        return int(kinds.get(end, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU))  # type: ignore[arg-type]

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> Any:
        """With the domain in eight digits, as for the card itself."""
        return SimpleNamespace(busId=f"0000FFFF:{self._end(handle, link) + 0x1A:02X}:00.0")  # type: ignore[operator]

    def _end(self, handle: int, link: int) -> int | str | None:
        leads_to = self._board(handle).leads_to
        return SWITCH if leads_to is None else leads_to[link]

    def nvmlDeviceGetMaxClockInfo(self, handle: int, kind: int) -> int:
        return self._board(handle).clock

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:
        return self._board(handle).clock

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        self._board(handle)
        return 55

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return self._board(handle).power_limit // 2

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return self._board(handle).reasons

    def nvmlDeviceGetComputeMode(self, handle: int) -> int:
        board = self._board(handle)
        return int(pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if board.exclusive else pynvml.NVML_COMPUTEMODE_DEFAULT)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=self._board(handle).utilisation)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        self._supported(self._board(handle).energy)
        self.millijoules += 100
        return self.millijoules

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self._board(handle).processes]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in self._board(handle).graphics]

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        names = {pid: name for board in self.boards for pid, name in board.names.items()}
        if pid not in names:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return names[pid]

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:
        """In a domain that no machine has."""
        return SimpleNamespace(busId=f"0000FFFF:{self.boards.index(self._at(handle)) + 0x1A:02X}:00.0")

    def nvmlDeviceGetTopologyCommonAncestor(self, a: int, b: int) -> int:
        self._board(a)
        return 20
