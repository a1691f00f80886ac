"""What is wrong with a user's workload, in one line: its key in config.yaml, and the line of its file that raised."""

import inspect
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scalecard.workloads.meta import NotInitialised
from scalecard.workloads.modules import accepted, loaded
from scalecard.workloads.workload import UNITS, Workload

FUNCTIONS = {"model": 0, "batch": 2, "loss": 2}  # required, with the number of their arguments that have no default
REQUIRED = "model(), batch(size, seed), loss(outputs, targets)"

PACKAGES = "the image gets packages by container.packages; without an image they must be installed here"


class NotAWorkload(ValueError):
    """What is wrong with a workload, by its key in config.yaml, and what is accepted."""

    def __init__(self, workload: Workload, problem: str) -> None:
        where = f"workloads.{workload.name}" + (f".file = {workload.file}" if workload.file else "")
        super().__init__(f"{where}: {problem}")


def lacks_a_package(workload: Workload, error: BaseException | None) -> bool:
    """Whether a module was not found, and is none of those in the file's own folder."""
    if not isinstance(error, ModuleNotFoundError) or not error.name or not workload.file:
        return False
    own = Path(workload.file).resolve().parent / error.name.partition(".")[0]
    return not own.is_dir() and not own.with_suffix(".py").is_file()


@contextmanager
def naming_errors(workload: Workload, doing: str) -> Iterator[None]:
    """NotAWorkload for whatever a file of the user's raises, or PyTorch with what it returns, and where that was."""
    try:
        yield
    except NotInitialised as error:
        raise NotAWorkload(workload, str(error)) from error
    except Exception as error:
        raise NotAWorkload(workload, f"{doing} raises {where_it_raised(workload, error)}") from error


def where_it_raised(workload: Workload, error: Exception) -> str:
    path, frames = str(Path(workload.file).resolve()), traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == path][-1:]
    line = [error.lineno] if isinstance(error, SyntaxError) else lines
    text = [*str(error).splitlines(), ""][0]
    said = "".join(f"line {number}: " for number in line) + f"{type(error).__name__}: {text}"
    return f"{said}; {PACKAGES}" if lacks_a_package(workload, error) else said


def check_functions(workload: Workload) -> None:
    """NotAWorkload if the file cannot be imported, lacks a function, or takes no such value."""
    try:
        module = loaded(workload.name, workload.file)
    except Exception as error:  # a file of the user's may raise anything
        raise NotAWorkload(workload, where_it_raised(workload, error)) from error
    for name, given in FUNCTIONS.items():
        function = getattr(module, name, None)
        if not callable(function):
            raise NotAWorkload(workload, f"has no function {name}; required: {REQUIRED}")
        try:
            inspect.signature(function).bind(*range(given))
        except TypeError:
            raise NotAWorkload(workload, f"{name} does not take {given} arguments; required: {REQUIRED}") from None
        except ValueError:  # what has no signature is believed
            pass
    if workload.recipe.optimizer == "own" and not callable(getattr(module, "optimizer", None)):
        raise NotAWorkload(workload, "recipe.optimizer = own: the file has no function optimizer(parameters)")
    if workload.unit not in UNITS:
        raise NotAWorkload(workload, f"UNIT = {workload.unit!r}: must be one of {', '.join(UNITS)}")
    functions = ["model", "batch", *(["dataset"] if hasattr(module, "dataset") else [])]
    if not callable(getattr(module, functions[-1])):
        raise NotAWorkload(workload, "dataset is no function; it must be one that returns a torch.utils.data.Dataset")
    arguments = [accepted(getattr(module, name)) for name in functions]
    for key in workload.given:
        if all(names is not None and key not in names for names in arguments):
            known = sorted({name for names in arguments if names for name in names} - {"size", "seed"})
            none = " nor ".join(f"{name}()" for name in functions)
            raise NotAWorkload(workload, f"neither {none} takes {key}; known: batch_size, {', '.join(known)}")
