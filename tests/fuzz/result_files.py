"""Altered result files: each is accepted with cause, or refused in one line that names the file and what is wrong.

Every file starts as a valid result, of machines with and without GPUs. Some of its fields are then changed, removed or
added, or its text is cut off, nested or filled with escapes. What is accepted is drawn and put into a report beside
another platform; a script that was planted in it must come out as text. A campaign, not part of `make test`.
"""

import json
import random
import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from scalecard.analysis.platforms import gather
from scalecard.records.files import InvalidResult, as_json, save
from scalecard.report import answers, figure_files, render
from support.every_experiment import every_result

Data = dict[str, Any]
Place = tuple[Any, Any]  # a container, and a key or an index of it

SCRIPT = "<script>alert(1)</script>"
TEXTS = (
    "",
    "x" * 5000,
    "\x1b[2Jgone",
    "a\nb",
    "\u202ereversed",
    "\ud800",
    SCRIPT,
    '"><img src=x onerror=alert(1)>',
    "$x^",
)
NUMBERS = (0, -1, 1, 2, 0.5, 1e-300, 1e12, 1e300, 2**64, 10**400, -0.0, float("nan"), float("inf"), -float("inf"))
VALUES = (*TEXTS, *NUMBERS, None, True, False, [], {}, [[]], [1], ["a"], {"a": 1}, [None])
PLANTED = re.compile(r"<script>alert|<img src=x", re.IGNORECASE)


def results(seed: int, count: int) -> tuple[dict[str, int], list[str]]:
    """Alter `count` files: how many were accepted and refused, and what should not have happened, a line for each."""
    draw, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="scalecard-fuzz-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(count):
            how, path = _altered(draw, Path(folder))
            try:
                counts[_outcome(path, alone=draw.random() < 0.5)] += 1
            except Exception as error:  # whatever else comes out is what this campaign looks for
                wrong.append(f"seed {seed}, file {number} ({how}): {type(error).__name__}: {str(error)[:300]}")
    return dict(counts), wrong


def _outcome(path: Path, *, alone: bool) -> str:
    """'refused' or 'accepted'; AssertionError if either is not as it should be.

    Alone, the file is the current platform's, and what is wrong with it is an error. Beside one, it is left out.
    """
    named, said = f"{path.parent.name}/{path.name}", StringIO()
    with redirect_stdout(said):
        error = _shown([path] if alone else [_unaltered(path), path])
    assert alone or not error, f"stops the report of another platform: {error}"
    refused = error or "".join(
        line for line in said.getvalue().splitlines(keepends=True) if line.startswith("left out")
    )
    if not refused:
        return "accepted"
    assert named in refused, f"does not name the file: {refused}"
    assert "Traceback" not in refused, refused
    for line in refused.splitlines():
        assert line.isprintable(), f"is not printable: {line!r}"
    assert alone <= (len(refused.splitlines()) == 1), f"has several lines: {refused!r}"
    return "refused"


def _shown(paths: list[Path]) -> str:
    """Draw the figures and write the report; why a file of the current platform was refused, or ''."""
    name, folder = paths[0].stem, paths[0].parent.parent
    try:
        found = gather(paths)
        if len(found.results) < len(paths):  # what is drawn is the unaltered one
            print(*found.left_out, sep="\n")
            return ""
        for each in (name, *answers.names()):
            figure_files.draw(each, paths, [folder / "figures" / f"{each}.html"])
        render.write(paths, folder / "figures", folder / "report.html")
    except InvalidResult as error:
        return str(error)
    assert not PLANTED.search((folder / "report.html").read_text("utf-8")), "a planted script is in the report"
    return ""


@cache
def _valid() -> list[tuple[str, str]]:
    """(experiment, text of its file) of a machine with GPUs and of one without."""
    platforms = [*every_result("altered", rounds=6), *every_result("altered", gpus=2, rounds=6, processes=2)]
    return [(result.experiment, as_json(result)) for result in platforms]


def _unaltered(path: Path) -> Path:
    """The same experiment on another platform, which is written once."""
    beside = path.parent.parent / "unaltered" / path.name
    if not beside.exists():
        for result in every_result("unaltered", rounds=6):
            save(result, beside.with_name(f"{result.experiment}.json"))
    return beside


def _altered(draw: random.Random, folder: Path) -> tuple[str, Path]:
    """Write an altered file; how it was altered, and its path."""
    name, text = draw.choice(_valid())
    if draw.random() < 0.15:
        how, content = _broken(draw, text)
    else:
        data = json.loads(text)
        how = "; ".join(draw.choice(CHANGES)(draw, data) for _ in range(draw.choice((1, 1, 1, 2, 5))))
        content = json.dumps(data).encode()
    path = folder / "altered" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return f"{name}: {how}", path


def _broken(draw: random.Random, text: str) -> tuple[str, bytes]:
    """A text that is no result, whatever its fields are."""
    deep = 10 ** draw.randrange(2, 6)
    return draw.choice(
        [
            ("cut off", text[: draw.randrange(len(text))].encode()),
            ("empty", b""),
            ("nested lists", b"[" * deep + b"]" * deep),
            ("nested objects", b'{"a":' * deep + b"1" + b"}" * deep),
            ("nested setting", text.replace('"spec":{', '"spec":{"a":' + "[" * deep + "]" * deep + ",", 1).encode()),
            ("a digit too many", text.replace("0.", "9" * 5000 + ".", 1).encode()),
            ("a whole number too long", text.replace('"seed":0', '"seed":' + "9" * 5000, 1).encode()),
            ("a key twice", text.replace('"spec":{', '"spec":{},"spec":{', 1).encode()),
            ("another encoding", text.encode("utf-16")),
            ("a byte that is no text", text.encode().replace(b"Linux", b"\xff\xfe", 1)),
            ("a mark of byte order", b"\xef\xbb\xbf" + text.encode()),
            ("no object", draw.choice([b"1", b"null", b'"text"', b"[]", b"{}", b"NaN"])),
        ]
    )


def _replace(draw: random.Random, data: Data) -> str:
    container, key = draw.choice(list(_places(data)))
    container[key] = draw.choice(VALUES)
    return f"{key} is {str(container[key])[:40]!r}"


def _scale(draw: random.Random, data: Data) -> str:
    """A number of the same type, which the type alone does not refuse."""
    container, key = draw.choice([(c, k) for c, k in _places(data) if type(c[k]) in (int, float)])
    container[key] = type(container[key])(container[key] * draw.choice((0, -1, 1e-9, 3, 1e6, 1e15)))
    return f"{key} is {container[key]}"


def _remove(draw: random.Random, data: Data) -> str:
    container, key = draw.choice(list(_places(data)))
    del container[key]
    return f"without {key}"


def _add(draw: random.Random, data: Data) -> str:
    container = draw.choice([data, *(c[k] for c, k in _places(data) if isinstance(c[k], dict))])
    key = draw.choice((*TEXTS, "user", "devices", "nodes"))
    container[key] = draw.choice(VALUES)
    return f"with {key[:40]!r}"


def _swap(draw: random.Random, data: Data) -> str:
    """Two values change places: each is right, elsewhere."""
    (a, i), (b, j) = draw.sample(list(_places(data)), 2)
    a[i], b[j] = json.loads(json.dumps(b[j])), json.loads(json.dumps(a[i]))
    return f"{i} and {j} swapped"


def _repeat(draw: random.Random, data: Data) -> str:
    lists = [c[k] for c, k in _places(data) if isinstance(c[k], list) and c[k]]
    own = draw.choice(lists)
    own += json.loads(json.dumps(own))[: draw.choice((1, len(own)))]
    return "a list repeated"


def _few_records(draw: random.Random, data: Data) -> str:
    """What a run that lost most of its cases leaves."""
    if isinstance(data.get("records"), list):
        data["records"] = [record for record in data["records"] if draw.random() < 0.2]
    return "few records"


CHANGES: tuple[Callable[[random.Random, Data], str], ...] = (
    _replace,
    _scale,
    _remove,
    _add,
    _swap,
    _repeat,
    _few_records,
)


def _places(value: Any) -> Iterator[Place]:
    """Every container with each of its keys or indices; of a list of many, the first and the last."""
    keys = list(value) if isinstance(value, dict) else sorted({0, len(value) - 1}) if value else []
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
