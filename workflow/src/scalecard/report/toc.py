"""The report's sections and answers: loading their modules, what readers call them, and the pages that they are on."""

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from types import ModuleType

from scalecard.analysis import by_key, formatting

# Between the summary and the evidence.
PAGES = {
    "Health": ("health", "async_timing", "copy_cost", "allreduce"),
    "Scaling": ("why", "use", "forecast", "save", "strategies", "input", "tuning"),
    "Learn": (
        *("dp_scratch", "dp_concise", "ddp", "heterogeneous"),
        *("model_parallel", "pipeline", "tensor_parallel", "hybrid"),
    ),
}
NAMES = {
    "why": "Why not N times as fast",
    "use": "What to use",
    "forecast": "How far it scales",
    "save": "What a checkpoint costs",
    "health": "Health",
    "async_timing": "Asynchronous timing",
    "copy_cost": "Copies",
    "allreduce": "All-reduce",
    "dp_scratch": "From scratch",
    "dp_concise": "nn.DataParallel",
    "ddp": "DistributedDataParallel",
    "heterogeneous": "Unequal devices",
    "model_parallel": "Stages on devices",
    "pipeline": "Pipelines",
    "tensor_parallel": "Tensor parallelism",
    "hybrid": "Data and model together",
    "strategies": "Every strategy",
    "input": "Loading data",
    "tuning": "Tuning one device",
}
AS_WRITTEN = {"ddp"}  # named by what also has its capitals inside a sentence
_ORDER = [name for names in PAGES.values() for name in names]


def names(package: ModuleType) -> list[str]:
    """Every module in a package, in alphabetical order."""
    return sorted(module.name for module in pkgutil.iter_modules(package.__path__))


def load(package: ModuleType, name: str) -> ModuleType:
    """A module of a package; ValueError says which ones exist."""
    if name not in names(package):
        what = package.__name__.rpartition(".")[2].removesuffix("s")
        raise ValueError(f"no {what} named '{name}' (known: {', '.join(names(package))})")
    return importlib.import_module(f"{package.__name__}.{name}")


def docstring(module: ModuleType) -> tuple[str, str]:
    """The question that a module answers, and how to read its figure."""
    first, _, rest = (module.__doc__ or module.__name__).partition("\n")
    return first.strip(), " ".join(rest.split())


def label(name: str) -> str:
    """'Copies' for copy_cost; the name itself, if nobody has given it a better one."""
    return NAMES.get(name, formatting.spaced(name))


def inside_sentence(name: str) -> str:
    """The label there: 'copies', but 'DistributedDataParallel'."""
    own = label(name)
    return own if name in AS_WRITTEN or name not in NAMES else own[0].lower() + own[1:]


def in_order(names: Iterable[str]) -> list[str]:
    """As the report has them; what is on no page comes last."""
    return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))


def by_page(names: Iterable[str], judged: Mapping[str, bool]) -> dict[str, list[tuple[str, bool | None]]]:
    """The contents: each name, and whether its rates and times are as they should be, if any is judged."""
    page_of = {name: page for page, own in PAGES.items() for name in own}
    return by_key((page_of.get(name, "Others"), (name, judged.get(name))) for name in in_order(names))
