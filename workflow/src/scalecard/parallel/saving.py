"""Checkpoints of a model and its optimiser, in one file that rank 0 writes, or in parts that all ranks write at once.

    OneFile   torch.save by rank 0, which must have all of it, as under DDP; the other ranks wait
    InParts   torch.distributed.checkpoint: each rank writes what it has of every tensor. Of one that is `started`, a
              thread writes a copy in the host's memory while training goes on

A checkpoint counts as saved once it is on the storage, and not in the host's cache alone.

Source: Wang et al., ByteCheckpoint (2024), for what stalls training, and what does not.
"""

import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)

from scalecard.distributed.context import RankContext

warnings.filterwarnings("ignore", "Detected an existing checkpoint")  # each replaces the one before


@dataclass
class Checkpoint(ABC):
    """Of a module and its optimiser as the ranks train them, in a folder that all ranks share."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    folder: Path
    ctx: RankContext

    @abstractmethod
    def save(self) -> None:
        """All of it, for all ranks once it returns; if that fails, a RuntimeError on every rank."""

    @abstractmethod
    def load(self) -> None:
        """What was saved last, back into the module and the optimiser of every rank."""

    def states(self) -> list[Tensor]:
        """What this rank's optimiser keeps; of plain SGD nothing."""
        parameters = (each for group in self.optimizer.param_groups for each in group["params"])
        states = (self.optimizer.state.get(each, {}) for each in parameters)
        kept = (state[name] for state in states for name in sorted(state))
        return [value for value in kept if isinstance(value, Tensor)]

    def sizes(self) -> Sequence[int]:
        """Bytes of the files that the tensors are in."""
        return [path.stat().st_size for path in self.folder.iterdir() if path.suffix in (".pt", ".distcp")]


class OneFile(Checkpoint):
    """What rank 0 has of a model that all ranks have."""

    def save(self) -> None:
        failed = ""
        if self.ctx.leads:
            try:
                with (self.folder / "checkpoint.pt").open("wb") as file:
                    torch.save({"model": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}, file)
                    file.flush()
                    os.fsync(file.fileno())
            except (OSError, RuntimeError) as error:  # torch.save has words of its own for a full disk
                failed = f"a checkpoint cannot be written: {error}"
        if failed := self.ctx.all_gather(failed)[0]:
            raise RuntimeError(failed)

    def load(self) -> None:
        path = self.folder / "checkpoint.pt"
        found = torch.load(path, map_location=self.ctx.device, weights_only=False)  # our own file, just written
        self.module.load_state_dict(found["model"])
        self.optimizer.load_state_dict(found["optimizer"])


class _Writer(FileSystemWriter):
    """Knows whether the thread that made it wrote as well."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._made_by, self.beside = threading.get_ident(), False

    def write_data(self, *args: Any, **kwargs: Any) -> Any:
        self.beside = threading.get_ident() != self._made_by
        return super().write_data(*args, **kwargs)


class InParts(Checkpoint):
    """What every rank has of a model that may be divided over them."""

    def _state(self) -> dict[str, Any]:
        """Of an optimiser without states PyTorch would take a step to make some."""
        if not self.states():
            return {"model": get_model_state_dict(self.module)}
        model, optimizer = get_state_dict(self.module, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def save(self) -> None:
        with _as_runtime_error():
            state_dict_saver.save(self._state(), storage_writer=_Writer(self.folder), process_group=self.ctx.control)

    def start(self) -> "Started":
        """Save what it is now, beside what this rank goes on to do."""
        writer = _Writer(self.folder)
        future = state_dict_saver.async_save(self._state(), storage_writer=writer, process_group=self.ctx.control)
        assert isinstance(future, Future), "no stager was given"
        return Started(future, writer)

    def load(self) -> None:
        state = self._state()
        with _as_runtime_error():
            reader = FileSystemReader(self.folder)
            state_dict_loader.load(state, storage_reader=reader, process_group=self.ctx.control)
        if "optimizer" in state:
            saved = {"model_state_dict": state["model"], "optim_state_dict": state["optimizer"]}
            set_state_dict(self.module, self.optimizer, **saved)
        else:
            set_model_state_dict(self.module, state["model"])


@contextmanager
def _as_runtime_error() -> Iterator[None]:
    """PyTorch's own exception, which all ranks get, is none that anybody else catches."""
    try:
        yield
    except CheckpointException as error:
        raise RuntimeError(f"a checkpoint cannot be written or read: {error}") from error


@dataclass
class Started:
    """A checkpoint that is being written."""

    future: Future[Any]
    writer: _Writer

    def wait(self) -> bool:
        """Until it is saved; whether another thread has written it."""
        with _as_runtime_error():
            self.future.result()
        return self.writer.beside
