"""The numbers in TensorBoard's event files, read without TensorFlow.

    table = tb_extract_log("runs/cartpole/log/serial")
    table["step"], table["evaluator/reward_mean"]

A table is a `ScalarTable`, or a `pandas.DataFrame` where pandas is installed.
"""

from __future__ import annotations

import bisect
import importlib
import math
import os
import statistics
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .. import _native
from ._reports import EVENT_FILES

__all__ = [
    "ScalarTable", "tb_create_range_plots", "tb_extract_log", "tb_extract_recursive_logs", "tb_has_log",
]  # fmt: skip


class ScalarTable(Dict[str, List[Any]]):
    """Columns by name, all of one length: `step`, and one for each tag. A gap is None."""

    def rows(self) -> List[Dict[str, Any]]:
        """The same as a list of rows."""
        return [dict(zip(self, values)) for values in zip(*self.values())]


def _event_files(folder: Path) -> List[Path]:
    # Their names hold the time at which they were made.
    return sorted(path for path in folder.glob(EVENT_FILES) if path.is_file())


def _scalars(path: Path) -> Iterator[Tuple[str, int, float, float]]:
    reader = _native.ScalarReader(str(path))
    while True:
        rows = reader.read()
        if not rows:
            return
        yield from rows


def _folder(place: Any) -> Path:
    folder = Path(place)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {os.fspath(place)!r} with event files")
    return folder


def tb_has_log(log_dir: Any) -> bool:
    """Whether the folder itself holds a number."""
    return any(True for path in _event_files(Path(log_dir)) for _ in _scalars(path))


def tb_extract_log(log_dir: Any) -> Any:
    """The numbers of a folder: a row for each step, rising, and a column for each tag. Of several values
    for a step the last one counts; nothing is left out."""
    return _as_frame(_table(_folder(log_dir)))


def _table(folder: Path) -> ScalarTable:
    by_tag: Dict[str, Dict[int, float]] = {}
    for path in _event_files(folder):
        for tag, step, value, _ in _scalars(path):
            by_tag.setdefault(tag, {})[step] = value
    steps = sorted({step for values in by_tag.values() for step in values})
    table = ScalarTable(step=list(steps))
    for tag in sorted(by_tag):
        # A tag that is called as the first column is must not hide it.
        name = tag if tag != "step" else "step (tag)"
        table[name] = [by_tag[tag].get(step) for step in steps]
    return table


def tb_extract_recursive_logs(root: Any) -> Dict[str, Any]:
    """The tables of all folders under a folder that hold numbers, by their relative path; `.` is the
    folder itself."""
    return {name: _as_frame(table) for name, table in _tables(_folder(root)).items()}


def _tables(root: Path) -> Dict[str, ScalarTable]:
    tables = {}
    for folder, folders, _ in os.walk(root):
        folders.sort()
        if tb_has_log(folder):
            tables[os.path.relpath(folder, root)] = _table(Path(folder))
    return tables


def _as_frame(table: ScalarTable) -> Any:
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        return table
    return pandas.DataFrame(table)


def tb_create_range_plots(
    logdir: Any,
    xname: str,
    yname: str,
    label_map: Optional[Mapping[str, str]] = None,
    n_samples: Optional[int] = None,
    lower_bound: Optional[float] = 0.0,
    upper_bound: Optional[float] = None,
    ax: Any = None,
) -> None:
    """Draws `yname` over `xname`: runs are grouped by the first part of their path, and a group is a line
    of means with a band of one standard deviation. `ax`: axes of matplotlib, default the current ones."""
    if n_samples is not None and n_samples < 1:
        raise ValueError(f"n_samples must be 1 or more, not {n_samples!r}")
    groups: Dict[str, List[ScalarTable]] = {}
    for name, table in _tables(_folder(logdir)).items():
        if xname in table and yname in table:
            groups.setdefault(name.split(os.path.sep)[0], []).append(table)
    if not groups:
        raise ValueError(f"no run under {os.fspath(logdir)!r} has both {xname!r} and {yname!r}")
    if ax is None:
        ax = _current_axes()
    labels = dict(label_map or {})
    for group, tables in groups.items():
        runs = [_curve(table, xname, yname) for table in tables]
        xs = _places([run for run in runs if run[0]], n_samples, lower_bound, upper_bound)
        means, low, high = _band(runs, xs)
        ax.plot(xs, means, label=labels.get(group, group))
        ax.fill_between(xs, low, high, alpha=0.2)
    ax.xaxis.set_major_formatter(lambda x, _: _short(x))
    ax.set_title(f"{xname!r} - {yname!r} plot")
    ax.set_xlabel(xname)
    ax.set_ylabel(yname)
    ax.legend()


def _current_axes() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot").gca()
    except ImportError:
        raise ImportError("tb_create_range_plots draws with matplotlib: pip install matplotlib") from None


_Curve = Tuple[List[float], List[float]]


def _curve(table: ScalarTable, xname: str, yname: str) -> _Curve:
    pairs = sorted(
        {x: y for x, y in zip(table[xname], table[yname]) if x is not None and y is not None}.items()
    )
    return [float(x) for x, _ in pairs], [float(y) for _, y in pairs]


def _places(
    runs: Sequence[_Curve], n_samples: Optional[int], lower: Optional[float], upper: Optional[float]
) -> List[float]:
    """Where a group is drawn: where its runs have values, within the bounds, thinned evenly."""
    if not runs:
        return []
    low = max(xs[0] for xs, _ in runs) if lower is None else lower
    high = min(xs[-1] for xs, _ in runs) if upper is None else upper
    places = sorted({x for xs, _ in runs for x in xs if low <= x <= high})
    if n_samples is None or n_samples >= len(places):
        return places
    if n_samples == 1:
        return [places[len(places) // 2]]
    last = len(places) - 1
    return [places[round(i * last / (n_samples - 1))] for i in range(n_samples)]


def _band(runs: Sequence[_Curve], places: Sequence[float]) -> Tuple[List[float], List[float], List[float]]:
    means, low, high = [], [], []
    for x in places:
        values = [value for value in (_at(run, x) for run in runs) if value is not None]
        mean = statistics.fmean(values)
        spread = statistics.pstdev(values) if all(map(math.isfinite, values)) else 0.0
        means.append(mean)
        low.append(mean - spread)
        high.append(mean + spread)
    return means, low, high


def _at(run: _Curve, x: float) -> Optional[float]:
    """Between two points linearly; None outside of the run."""
    xs, ys = run
    if not xs or not xs[0] <= x <= xs[-1]:
        return None
    right = bisect.bisect_left(xs, x)
    if xs[right] == x:
        return ys[right]
    part = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] * (1 - part) + ys[right] * part


def _short(x: float) -> str:
    for unit, name in ((1e6, "M"), (1e3, "k")):
        if abs(x) >= unit:
            return f"{x / unit:.2f}{name}"
    return f"{x:g}"
