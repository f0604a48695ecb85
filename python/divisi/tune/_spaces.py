"""Spaces and hyper values: what a search may vary, and how a raw draw becomes a value."""

from __future__ import annotations

import copy
import math
import statistics
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple, Union

from .. import _native

_STANDARD_NORMAL = statistics.NormalDist()


class Space:
    """One dimension of a search: see `ContinuousSpace`, `SeparateSpace`, `FixedSpace`."""

    def __init__(self, native: _native.TuneSpace):
        self.native = native
        """The engine's object."""

    @property
    def length(self) -> Any:
        """The distance of the ends; the number of alternatives."""
        return self.native.length()

    @property
    def count(self) -> Optional[int]:
        """How many points there are; None for an interval."""
        return self.native.count()

    def points(self, n: int) -> List[float]:
        """`n` points spread over the space, as a grid takes them."""
        return self.native.spread(n)


class ContinuousSpace(Space):
    """The numbers from `lbound` to `ubound`."""

    def __init__(self, lbound: float, ubound: float):
        super().__init__(_native.TuneSpace.continuous(float(lbound), float(ubound)))

    @property
    def lbound(self) -> float:
        """The lower end."""
        return self.native.lower()

    @property
    def ubound(self) -> float:
        """The upper end."""
        return self.native.upper()


class SeparateSpace(Space):
    """The numbers `start`, `start + step`, ... up to `end`, which is the last of them."""

    def __init__(self, start: float, end: float, step: float):
        super().__init__(_native.TuneSpace.separate(float(start), float(end), float(step)))

    @property
    def start(self) -> float:
        """The first point."""
        return self.native.lower()

    @property
    def end(self) -> float:
        """The last point."""
        return self.native.upper()

    @property
    def step(self) -> float:
        """The distance of two points."""
        return self.native.step()


class FixedSpace(Space):
    """`n` alternatives."""

    def __init__(self, n: int):
        super().__init__(_native.TuneSpace.fixed(n))

    @property
    def length(self) -> int:
        """The number of alternatives."""
        return int(self.native.length())


_Transform = Tuple[str, Callable[[Any], Any], Any]
"""Name, function, and what to store of it: the operand, or None."""


def _operator(name: str, function: Callable[[Any, Any], Any], reflected: bool) -> Callable[..., Any]:
    def apply(self: "HyperValue", other: Any) -> "HyperValue":
        if isinstance(other, HyperValue):
            raise TypeError(
                f"two hyper values cannot be combined by '{name}': each is drawn for itself; "
                "combine them inside the objective"
            )
        if reflected:
            return self._with(f"r{name}", lambda x: function(other, x), other)
        return self._with(name, lambda x: function(x, other), other)

    return apply


class HyperValue:
    """A space, and transforms that make a value of a draw from it. Immutable: operators give a new
    one over the same space, as in ``10 ** uniform(-5, -1)`` or ``uniform(0, 1) >> my_function``."""

    is_hyper_value = True
    """Expressions refuse it."""

    def __init__(self, space: Space, transforms: Sequence[_Transform] = ()):
        self._space = space
        self._transforms = tuple(transforms)

    @property
    def space(self) -> Space:
        """What is drawn from."""
        return self._space

    def trans(self, x: Any) -> Any:
        """The value that the raw draw `x` becomes."""
        for _, function, _ in self._transforms:
            x = function(x)
        return x

    def value_of(self, raw: float) -> Any:
        """The value of a draw as the engine gives it; alternatives are drawn as an index."""
        value = self.trans(int(raw) if isinstance(self._space, FixedSpace) else raw)
        return own_copy(value)

    def describe(self) -> List[Any]:
        """The transforms as data: [name, operand] each; a function of yours is "opaque"."""
        return [[name, operand] for name, _, operand in self._transforms]

    def _with(self, name: str, function: Callable[[Any], Any], operand: Any = None) -> "HyperValue":
        return HyperValue(self._space, (*self._transforms, (name, function, operand)))

    def __rshift__(self, function: Callable[[Any], Any]) -> "HyperValue":
        if not callable(function):
            raise TypeError(f"'>>' takes a function of one value, not {function!r}")
        return self._with("opaque", function)

    __add__ = _operator("+", lambda a, b: a + b, False)
    __radd__ = _operator("+", lambda a, b: a + b, True)
    __sub__ = _operator("-", lambda a, b: a - b, False)
    __rsub__ = _operator("-", lambda a, b: a - b, True)
    __mul__ = _operator("*", lambda a, b: a * b, False)
    __rmul__ = _operator("*", lambda a, b: a * b, True)
    __truediv__ = _operator("/", lambda a, b: a / b, False)
    __rtruediv__ = _operator("/", lambda a, b: a / b, True)
    __floordiv__ = _operator("//", lambda a, b: a // b, False)
    __rfloordiv__ = _operator("//", lambda a, b: a // b, True)
    __mod__ = _operator("%", lambda a, b: a % b, False)
    __rmod__ = _operator("%", lambda a, b: a % b, True)
    __pow__ = _operator("**", lambda a, b: a**b, False)
    __rpow__ = _operator("**", lambda a, b: a**b, True)

    def __pos__(self) -> "HyperValue":
        return self._with("+x", lambda x: +x)

    def __neg__(self) -> "HyperValue":
        return self._with("-x", lambda x: -x)

    def __bool__(self) -> bool:
        raise TypeError("a hyper value has no truth value: it stands for a value not yet drawn")


def own_copy(value: Any) -> Any:
    """A copy of what an objective could change, the value itself where it cannot be copied."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return value
    try:
        return copy.deepcopy(value)
    except Exception:  # a lock, a handle: shared, as it cannot be otherwise
        return value


def _number(name: str, value: Any) -> float:
    if isinstance(value, (str, bytes, HyperValue)) or value is None:
        raise TypeError(f"{name} must be a number, not {value!r}")
    return float(value)


def uniform(lbound: float, ubound: float) -> HyperValue:
    """Any number from `lbound` to `ubound`."""
    if not _number("lbound", lbound) < _number("ubound", ubound):
        raise ValueError(f"uniform: the lower bound {lbound} is not below the upper bound {ubound}")
    return HyperValue(ContinuousSpace(lbound, ubound))


def quniform(start: float, end: float, step: float) -> HyperValue:
    """One of `start`, `start + step`, ... up to `end`, as a float."""
    if not _number("start", start) <= _number("end", end):
        raise ValueError(f"quniform: the start {start} is above the end {end}")
    if not _number("step", step) > 0:
        raise ValueError(f"quniform: the step must be positive, not {step}")
    return HyperValue(SeparateSpace(start, end, step))


def randint(start: float, end: float) -> HyperValue:
    """A whole number from `start` to `end`, both included."""
    first, last = math.ceil(_number("start", start)), math.floor(_number("end", end))
    if first > last:
        raise ValueError(f"randint: there is no whole number from {start} to {end}")
    return HyperValue(SeparateSpace(first, last, 1.0), [("int", int, None)])


def choice(chs: Union[List[Any], Tuple[Any, ...]]) -> HyperValue:
    """One of the elements of a list or tuple."""
    if not isinstance(chs, (list, tuple)):
        raise TypeError(f"choice takes a list or a tuple, whose order is known, not {type(chs).__name__}")
    if not chs:
        raise ValueError("choice: nothing to choose from")
    elements = tuple(chs)
    return HyperValue(FixedSpace(len(elements)), [("choice", lambda i: elements[i], list(elements))])


def fixed(value: Any) -> HyperValue:
    """A dimension with this one value."""
    return choice([value])


def l2normal(x: float) -> float:
    """The number below which a part `x` of the standard normal distribution lies."""
    if x == 0:
        return -math.inf
    if x == 1:
        return math.inf
    if not 0 < x < 1:
        return math.nan
    return _STANDARD_NORMAL.inv_cdf(x)


def randn(mu: float = 0.0, sigma: float = 1.0) -> HyperValue:
    """A normally distributed number."""
    mu, sigma = _number("mu", mu), _number("sigma", sigma)
    return HyperValue(
        ContinuousSpace(0.0, 1.0), [("normal", lambda x: mu + sigma * l2normal(x), [mu, sigma])]
    )


def normal(mu: float, sigma: float, clip: Optional[Tuple[float, float]] = None) -> HyperValue:
    """A normally distributed number, inside of `clip` if that is given. Never infinite: the outermost
    thousandth of a millionth on both sides is left out."""
    mu, sigma = _number("mu", mu), _number("sigma", sigma)
    if not sigma > 0:
        raise ValueError(f"normal: sigma must be positive, not {sigma}")
    lower, upper = 1e-9, 1 - 1e-9
    if clip is not None:
        low, high = (_number("clip", bound) for bound in clip)
        if not low < high:
            raise ValueError(f"normal: the clip {clip!r} has no lower end below its upper end")
        lower = max(lower, _STANDARD_NORMAL.cdf((low - mu) / sigma))
        upper = min(upper, _STANDARD_NORMAL.cdf((high - mu) / sigma))
        if not lower < upper:
            raise ValueError(f"normal: practically nothing of the distribution lies in {clip!r}")
    return HyperValue(
        ContinuousSpace(lower, upper), [("normal", lambda x: mu + sigma * l2normal(x), [mu, sigma])]
    )


def _log_bounds(name: str, low: float, high: float) -> Tuple[float, float]:
    if not 0 < _number("lbound", low) < _number("ubound", high):
        raise ValueError(f"{name}: the bounds must be positive, the lower one first: not {low}, {high}")
    return math.log(low), math.log(high)


def loguniform(lbound: float, ubound: float) -> HyperValue:
    """A number from `lbound` to `ubound` whose logarithm is uniform; every algorithm works with the
    logarithm."""
    bounds = _log_bounds("loguniform", lbound, ubound)
    return HyperValue(
        ContinuousSpace(*bounds),
        [("exp", lambda x: min(max(math.exp(x), lbound), ubound), [lbound, ubound])],
    )


def qloguniform(lbound: float, ubound: float, step: float) -> HyperValue:
    """As `loguniform`, rounded to a multiple of `step` inside of the bounds."""
    bounds = _log_bounds("qloguniform", lbound, ubound)
    if not _number("step", step) > 0:
        raise ValueError(f"qloguniform: the step must be positive, not {step}")
    first, last = math.ceil(lbound / step - 1e-9), math.floor(ubound / step + 1e-9)
    if first > last:
        raise ValueError(f"qloguniform: no multiple of {step} lies from {lbound} to {ubound}")
    steps = SeparateSpace(0, step, step).native

    def rounded(x: float) -> float:
        return steps.at(min(max(round(math.exp(x) / step), first), last))

    return HyperValue(ContinuousSpace(*bounds), [("qexp", rounded, [lbound, ubound, step])])


def lograndint(start: int, end: int) -> HyperValue:
    """A whole number from `start` to `end` whose logarithm is about uniform; `start` is at least 1."""
    first, last = math.ceil(_number("start", start)), math.floor(_number("end", end))
    if not 1 <= first < last:
        raise ValueError(f"lograndint: needs 1 <= start < end, not {start}, {end}")
    # Half a unit beyond both ends: the first and the last number get their full share.
    bounds = math.log(first - 0.5), math.log(last + 0.5)
    return HyperValue(
        ContinuousSpace(*bounds),
        [("intexp", lambda x: min(max(round(math.exp(x)), first), last), [first, last])],
    )


class Conditional:
    """What `conditional` makes: a choice, and what there is to search with some of its values."""

    def __init__(self, parent: HyperValue, branches: Dict[Any, Any], key: str):
        self.parent = parent
        """The choice."""
        self.key = key
        """Where its value is put if it has no place of its own."""
        self.branches: List[Tuple[List[int], Any]] = []
        """For each branch: the indices of the choice that it is for, and its structure."""
        for value, structure in branches.items():
            self.branches.append((_indices_of(parent, value), structure))

    def check_inline(self) -> None:
        """Every branch must be a dict that has room for the choice."""
        for _, structure in self.branches:
            if not isinstance(structure, dict):
                raise TypeError(
                    f"conditional: its choice has no place of its own and is put into the branch as "
                    f"{self.key!r}: the branch must be a dict, not {structure!r}"
                )
            if self.key in structure:
                raise ValueError(
                    f"conditional: a branch has the key {self.key!r}, where the choice is put: give "
                    "another one with key="
                )


def _indices_of(parent: HyperValue, value: Any) -> List[int]:
    count = parent.space.count or 0
    found = [index for index in range(count) if _same(parent.trans(index), value)]
    if not found:
        known = ", ".join(repr(parent.trans(index)) for index in range(count))
        raise ValueError(f"conditional: {value!r} is not one of the choice's values: {known}")
    return found


def _same(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b)
    except Exception:  # of arrays, say
        return False


def conditional(
    parent: HyperValue, branches: Dict[Any, Any], key: str = "name"
) -> Conditional:
    """What is searched only with some values of a choice; the rest is absent from the configuration.

    The choice has a place of its own, and the branch of its value stands here, or nothing::

        kind = choice(["sgd", "adam"])
        {"optimizer": kind, "momentum": conditional(kind, {"sgd": uniform(0, 1)})}

    Or it has none, and stands in the branch, a dict, under `key`: ``{"optimizer": {"name": "sgd",
    "momentum": 0.3}}``. A value without a branch is then a dict with the name only::

        {"optimizer": conditional(choice(["sgd", "adam"]), {"sgd": {"momentum": uniform(0, 1)}})}
    """
    if not isinstance(parent, HyperValue) or not isinstance(parent.space, FixedSpace):
        raise TypeError(f"conditional depends on a choice, not on {parent!r}")
    if not isinstance(branches, dict):
        raise TypeError(f"conditional takes a dict from values to structures, not {branches!r}")
    if not branches:
        raise ValueError("conditional: there is no branch")
    return Conditional(parent, branches, key)


_ABSENT: Any = object()
"""In the place of what is not there."""


class Structure:
    """Nested dicts, lists and tuples with hyper values at some of their leaves."""

    def __init__(self, structure: Any):
        self._structure = structure
        walk = _Walk(structure)
        self._values = walk.values
        self._conditions = walk.conditions()
        self._parents = walk.parents()
        self._inline = walk.inline
        self._paths = list(dict.fromkeys(_display_paths(structure, (), walk.inline)))
        self._names = walk.names()

    def flatten(self) -> List[HyperValue]:
        """The hyper values: entries of a dict sorted by key, items by position, branches in their
        order, depth first."""
        return list(self._values)

    def spaces(self) -> List[_native.TuneSpace]:
        """What the engine draws from, in the same order."""
        return [value.space.native for value in self._values]

    def search_space(self) -> _native.TuneSearchSpace:
        """The same, with what depends on what."""
        return _native.TuneSearchSpace(self.spaces(), self._conditions)

    def rebuild(self, values: Sequence[Any]) -> Any:
        """The structure with the given values in the place of the hyper values; those of branches
        that do not apply are not used."""
        if len(values) != len(self._values):
            raise ValueError(f"{len(values)} values for {len(self._values)} hyper values")
        chosen = {}
        for place in self._parents.values():
            parent = self._values[place]
            indices = range(parent.space.count or 0)
            chosen[place] = next((i for i in indices if _same(parent.trans(i), values[place])), -1)
        return self._build(values, chosen)

    def config(self, raw: Sequence[float]) -> Any:
        """The structure for a raw draw of the engine, in which NaN is inactive."""
        values = [_ABSENT if x != x else value.value_of(x) for value, x in zip(self._values, raw)]
        chosen = {p: -1 if raw[p] != raw[p] else int(raw[p]) for p in self._parents.values()}
        return self._build(values, chosen)

    def _is_active(self, place: int, chosen: Dict[int, int]) -> bool:
        return all(
            chosen[parent] in indices and self._is_active(parent, chosen)
            for child, parent, indices in self._conditions
            if child == place
        )

    def flat_names(self) -> List[str]:
        """The names of `flatten`, each another one: `lr`, or with conditions `lr if optimizer in 0,2`,
        which are indices of the choice."""
        return list(self._names)

    def has_conditions(self) -> bool:
        """Whether something is searched with some values of a choice only."""
        return bool(self._conditions)

    def paths(self) -> List[Tuple[Any, ...]]:
        """Where the hyper values are, in the structure's own order, as it is shown; a place that
        several branches have is there once."""
        return list(self._paths)

    def _build(self, values: Sequence[Any], chosen: Dict[int, int]) -> Any:
        # An algorithm that does not know of conditions draws inactive choices as well.
        chosen = {place: i if self._is_active(place, chosen) else -1 for place, i in chosen.items()}
        return _Build(values, chosen, self._parents, self._inline).build(self._structure)


def _sorted_keys(structure: Dict[Any, Any]) -> List[Any]:
    try:
        return sorted(structure)
    except TypeError:
        kinds = sorted({type(key).__name__ for key in structure})
        raise TypeError(
            f"the keys of a search structure must have an order; these are {', '.join(kinds)}"
        ) from None


_Rules = List[Tuple[HyperValue, List[int]]]
"""Choices, and the indices of theirs with which something is searched."""


class _Walk:
    """The hyper values of a structure in their order, and the conditions of each."""

    def __init__(self, structure: Any):
        self.values: List[HyperValue] = []
        self._value_paths: List[Tuple[Any, ...]] = []
        self._places: Dict[int, List[int]] = {}  # of each hyper value, by identity
        self._rules: List[Tuple[int, HyperValue, List[int]]] = []
        self._conditionals: List[Conditional] = []
        self._leaves: Dict[int, int] = {}
        self._count_leaves(structure)
        self.inline = {
            id(one) for one in self._conditionals if id(one.parent) not in self._leaves
        }
        """The conditionals that their choice is put into, by identity."""
        self._check()
        self._visit(structure, [], ())

    def conditions(self) -> List[Tuple[int, int, List[int]]]:
        """As the engine takes them."""
        parents = self.parents()
        return [(place, parents[id(parent)], indices) for place, parent, indices in self._rules]

    def parents(self) -> Dict[int, int]:
        """The place of each choice that something depends on, by its identity."""
        return {id(one.parent): self._places[id(one.parent)][0] for one in self._conditionals}

    def names(self) -> List[str]:
        """Of all values, with their conditions."""
        names = [path_name(path) for path in self._value_paths]
        parents = self.parents()
        for place, parent, indices in self._rules:
            chosen = path_name(self._value_paths[parents[id(parent)]])
            names[place] += f" if {chosen} in {','.join(map(str, indices))}"
        return names

    def _count_leaves(self, structure: Any) -> None:
        if isinstance(structure, HyperValue):
            self._leaves[id(structure)] = self._leaves.get(id(structure), 0) + 1
        elif isinstance(structure, Conditional):
            self._conditionals.append(structure)
            for _, branch in structure.branches:
                self._count_leaves(branch)
        elif isinstance(structure, dict):
            for item in structure.values():
                self._count_leaves(item)
        elif isinstance(structure, (list, tuple)):
            for item in structure:
                self._count_leaves(item)

    def _check(self) -> None:
        inline = [one for one in self._conditionals if id(one) in self.inline]
        owners = [id(one.parent) for one in inline]
        for one in inline:
            one.check_inline()
            if owners.count(id(one.parent)) > 1:
                raise ValueError(
                    "several conditionals depend on a choice that has no place of its own: put the "
                    "choice itself into the structure"
                )
        for one in self._conditionals:
            if self._leaves.get(id(one.parent), 1) > 1:
                raise ValueError(
                    "a conditional depends on a choice that is in the structure more than once, each "
                    "drawn for itself: make a choice of its own for it"
                )

    def _add(self, value: HyperValue, rules: _Rules, path: Tuple[Any, ...]) -> None:
        place = len(self.values)
        self.values.append(value)
        self._value_paths.append(path)
        self._places.setdefault(id(value), []).append(place)
        self._rules += [(place, parent, indices) for parent, indices in rules]

    def _visit(self, structure: Any, rules: _Rules, path: Tuple[Any, ...]) -> None:
        if isinstance(structure, HyperValue):
            self._add(structure, rules, path)
        elif isinstance(structure, Conditional):
            if id(structure) in self.inline:
                self._add(structure.parent, rules, (*path, structure.key))
            for indices, branch in structure.branches:
                self._visit(branch, [*rules, (structure.parent, indices)], path)
        elif isinstance(structure, dict):
            for key in _sorted_keys(structure):
                self._visit(structure[key], rules, (*path, key))
        elif isinstance(structure, (list, tuple)):
            for index, item in enumerate(structure):
                if isinstance(item, Conditional) and id(item) not in self.inline:
                    raise ValueError(
                        "an item of a list cannot be absent: put the conditional into a dict"
                    )
                self._visit(item, rules, (*path, index))


class _Build:
    """A structure with values in the place of its hyper values, which are taken in their order."""

    def __init__(
        self,
        values: Sequence[Any],
        chosen: Dict[int, int],
        parents: Dict[int, int],
        inline: Set[int],
    ):
        self._values = iter(values)
        self._chosen = chosen
        self._parents = parents
        self._inline = inline

    def build(self, structure: Any) -> Any:
        if isinstance(structure, HyperValue):
            return next(self._values)
        if isinstance(structure, Conditional):
            return self._branch(structure)
        if isinstance(structure, dict):
            built = {key: self.build(structure[key]) for key in _sorted_keys(structure)}
            built = {key: value for key, value in built.items() if value is not _ABSENT}
            return built if type(structure) is dict else type(structure)(built)
        if isinstance(structure, (list, tuple)):
            items = [self.build(item) for item in structure]
            if hasattr(structure, "_fields"):  # a named tuple takes its items one by one
                return type(structure)(*items)
            return items if type(structure) is list else type(structure)(items)
        return own_copy(structure)

    def _branch(self, structure: Conditional) -> Any:
        is_inline = id(structure) in self._inline
        name = next(self._values) if is_inline else None
        index = self._chosen[self._parents[id(structure.parent)]]
        found: Any = _ABSENT
        for indices, branch in structure.branches:
            built = self.build(branch)  # also of others: their values are taken
            if index in indices:
                found = built
        if not is_inline or name is _ABSENT:
            return found
        if found is _ABSENT:
            return {structure.key: name}
        merged = {structure.key: name, **found}
        return merged if type(found) is dict else type(found)(merged)


def _display_paths(structure: Any, path: Tuple[Any, ...], inline: Set[int]) -> Any:
    if isinstance(structure, HyperValue):
        yield path
    elif isinstance(structure, Conditional):
        if id(structure) in inline:
            yield (*path, structure.key)
        for _, branch in structure.branches:
            yield from _display_paths(branch, path, inline)
    elif isinstance(structure, dict):
        for key, item in structure.items():
            yield from _display_paths(item, (*path, key), inline)
    elif isinstance(structure, (list, tuple)):
        for index, item in enumerate(structure):
            yield from _display_paths(item, (*path, index), inline)


def path_name(path: Sequence[Any]) -> str:
    """`policy.other.eps.start`; items of lists by their position."""
    return ".".join(str(part) for part in path)
