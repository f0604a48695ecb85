"""Expressions over a result: `R['eval_value'] > 100`, written before there is one.

An expression is data: `text` prints it, `parse` reads it back, `evaluate` computes it.
"""

from __future__ import annotations

import ast
import functools
import math
import statistics
import types
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple

Record = Mapping[str, Any]
"""What an expression is computed from: the keys `config`, `return` and `metrics`."""

_ROOTS = {"C": "config", "R": "return", "M": "metrics"}

_BINARY: Dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a**b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&": lambda a, b: a and b,
    "|": lambda a, b: a or b,
}
_UNARY: Dict[str, Callable[[Any], Any]] = {
    "+": lambda a: +a,
    "-": lambda a: -a,
    "~": lambda a: not a,
}


def _stdev(values: Any) -> float:
    return float(statistics.stdev(_floats(values)))


def _floats(values: Any) -> List[float]:
    return [float(value) for value in values]


_METHODS: Dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "len": len,
    "sum": lambda values: sum(values),
    "mean": lambda values: float(statistics.fmean(_floats(values))),
    "stdev": _stdev,
    "std": lambda values: float(statistics.pstdev(_floats(values))),
    "median": lambda values: float(statistics.median(_floats(values))),
    "max": lambda values: max(values),
    "min": lambda values: min(values),
    "last": lambda values: values[-1],
    "isnan": lambda value: math.isnan(value),
}
_METHODS_OF_ONE: Dict[str, Callable[[Any, Any], Any]] = {
    "is_": lambda value, other: value is other,
    "isinstance_": isinstance,
}
_FUNCTIONS: Dict[str, Callable[..., Any]] = {
    "where": lambda condition, yes, no: yes if condition else no,
    "log": math.log,
    "exp": math.exp,
    "sqrt": math.sqrt,
}


def _forward(symbol: str) -> Any:
    return lambda self, other: Expression("binary", symbol, (self, _operand(other, symbol)))


def _forward_unless_rule(symbol: str) -> Any:
    def combined(self: "Expression", other: Any) -> Any:
        if getattr(type(other), "is_stop_rule", False):  # a rule knows how it is combined
            return NotImplemented
        return Expression("binary", symbol, (self, _operand(other, symbol)))

    return combined


def _reflected(symbol: str) -> Any:
    return lambda self, other: Expression("binary", symbol, (_operand(other, symbol), self))


def _unary(symbol: str) -> Any:
    return lambda self: Expression("unary", symbol, (self,))


class Expression:
    """A computation over a result that is not there yet. Made from `R`, `M` and `C`.

    ``e[key]``, ``e.name``, ``e(...)``, arithmetic, comparisons, ``&``, ``|`` and ``~`` give further
    expressions, and so do the methods abs, len, sum, mean, stdev, std, median, max, min, last,
    isnan, is_ and isinstance_. An operand that is a function is called with the whole record.
    """

    __slots__ = ("_kind", "_data", "_parts")

    def __init__(self, kind: str, data: Any = None, parts: Tuple["Expression", ...] = ()):
        self._kind = kind
        self._data = data
        self._parts = parts

    def same_as(self, other: Any) -> bool:
        """Whether `other` is the same expression: the operators and constants, not the result."""
        return (
            isinstance(other, Expression)
            and self._kind == other._kind
            and len(self._parts) == len(other._parts)
            and _same_data(self._data, other._data)
            and all(a.same_as(b) for a, b in zip(self._parts, other._parts))
        )

    def __getitem__(self, key: Any) -> "Expression":
        return Expression("item", None, (self, _operand(key)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _METHODS:
            return functools.partial(Expression, "method", name, (self,))
        if name in _METHODS_OF_ONE:
            # A type is an operand here, not a function to call.
            return lambda other: Expression("method1", name, (self, _constant_or_expression(other)))
        return Expression("attribute", name, (self,))

    def __call__(self, *args: Any) -> "Expression":
        return Expression("call", None, (self, *(_operand(argument) for argument in args)))

    def __repr__(self) -> str:
        return text(self)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "an expression has no truth value before there is a result: write (a) & (b), (a) | (b) "
            "and ~a for and, or and not, and (1 < e) & (e < 3) for 1 < e < 3"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("an expression cannot be iterated: take items by e[0], e[1], ...")

    def __contains__(self, item: Any) -> NoReturn:
        raise TypeError("'in' does not work on an expression: pass a function of the record instead")

    __eq__ = _forward("==")
    __ne__ = _forward("!=")
    __lt__ = _forward("<")
    __le__ = _forward("<=")
    __gt__ = _forward(">")
    __ge__ = _forward(">=")
    __add__ = _forward("+")
    __radd__ = _reflected("+")
    __sub__ = _forward("-")
    __rsub__ = _reflected("-")
    __mul__ = _forward("*")
    __rmul__ = _reflected("*")
    __truediv__ = _forward("/")
    __rtruediv__ = _reflected("/")
    __floordiv__ = _forward("//")
    __rfloordiv__ = _reflected("//")
    __mod__ = _forward("%")
    __rmod__ = _reflected("%")
    __pow__ = _forward("**")
    __rpow__ = _reflected("**")
    __and__ = _forward_unless_rule("&")
    __rand__ = _reflected("&")
    __or__ = _forward_unless_rule("|")
    __ror__ = _reflected("|")
    __pos__ = _unary("+")
    __neg__ = _unary("-")
    __invert__ = _unary("~")

    def __abs__(self) -> "Expression":
        return Expression("method", "abs", (self,))
    __hash__ = None  # type: ignore[assignment]


R = Expression("root", "R")
"""What the objective returned."""
M = Expression("root", "M")
"""The metrics of the step: `M['time']` is the wall time of its last try, in seconds."""
C = Expression("root", "C")
"""The configuration that the objective was given."""


def where(condition: Any, yes: Any, no: Any) -> Expression:
    """`yes` where the condition holds, `no` otherwise. All three are computed."""
    return Expression("function", "where", (_operand(condition), _operand(yes), _operand(no)))


def log(value: Any) -> Expression:
    """The natural logarithm."""
    return Expression("function", "log", (_operand(value),))


def exp(value: Any) -> Expression:
    """e to the power of the value."""
    return Expression("function", "exp", (_operand(value),))


def sqrt(value: Any) -> Expression:
    """The square root."""
    return Expression("function", "sqrt", (_operand(value),))


def _same_data(one: Any, other: Any) -> bool:
    if one is other:
        return True
    try:
        return type(one) is type(other) and bool(one == other)
    except Exception:  # things whose comparison gives no truth value are not equal
        return False


def _constant_or_expression(operand: Any) -> Expression:
    return operand if isinstance(operand, Expression) else Expression("constant", operand)


def _operand(operand: Any, symbol: str = "") -> Expression:
    """Inside an expression: whatever can be called is called with the record."""
    if isinstance(operand, Expression):
        return operand
    if getattr(type(operand), "is_hyper_value", False):
        raise TypeError(
            "a hyper value is drawn before there is a result, and is no part of an expression: "
            "write C['name'] for what was drawn, or space >> math.log for a function of a draw"
        )
    if callable(operand) and not (symbol in ("==", "!=") and isinstance(operand, type)):
        return Expression("record", operand)
    return Expression("constant", operand)


def as_expression(condition: Any) -> Expression:
    """What `maximize`, `stop_when` and `concern` take: an expression, a function of the record, or a
    constant. Classes and objects that can be called are constants here."""
    if isinstance(condition, Expression):
        return condition
    functions = (
        types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial,
    )  # fmt: skip
    if isinstance(condition, functions):
        return Expression("record", condition)
    return Expression("constant", condition)


def target_key(expression: Expression) -> Optional[str]:
    """The key that ``R[key]`` takes; None: it is another expression."""
    if expression._kind != "item" or not expression._parts[0].same_as(R):
        return None
    key = expression._parts[1]
    return key._data if key._kind == "constant" and isinstance(key._data, str) else None


def binary_parts(expression: Expression) -> Tuple[str, Tuple[Expression, ...]]:
    """The operator and both sides; "" and nothing if the expression is something else."""
    if expression._kind != "binary":
        return "", ()
    return str(expression._data), expression._parts


def evaluate(expression: Expression, record: Record) -> Any:
    """The expression's value for a record. Raises what its parts raise."""
    kind, data = expression._kind, expression._data
    if kind == "root":
        return record[_ROOTS[data]]
    if kind == "constant":
        return data
    if kind == "record":
        return data(record)
    parts = [evaluate(part, record) for part in expression._parts]
    if kind == "binary":
        return _BINARY[data](*parts)
    if kind == "unary":
        return _UNARY[data](*parts)
    if kind == "item":
        return _item(expression, *parts)
    if kind == "attribute":
        return getattr(parts[0], data)
    if kind == "call":
        return parts[0](*parts[1:])
    if kind == "method":
        return _METHODS[data](*parts)
    if kind == "method1":
        return _METHODS_OF_ONE[data](*parts)
    return _FUNCTIONS[data](*parts)


def _item(expression: Expression, container: Any, key: Any) -> Any:
    try:
        return container[key]
    except KeyError:
        if not isinstance(container, Mapping):
            raise
        there = ", ".join(map(repr, list(container)[:10])) or "none"
        raise KeyError(f"{text(expression)} is missing; the keys there: {there}") from None


# As in Python: the higher, the tighter.
_PRECEDENCE = {
    "==": 1, "!=": 1, "<": 1, "<=": 1, ">": 1, ">=": 1, "|": 2, "&": 3, "+": 4, "-": 4,
    "*": 5, "/": 5, "//": 5, "%": 5, "**": 7,
}  # fmt: skip
_UNARY_PRECEDENCE = 6
_CONSTANT_PRECEDENCE = 8
_TIGHTEST = 9


def text(expression: Expression) -> str:
    """The expression as Python writes it; a function of yours is its name in angle brackets."""
    return _text(expression)[0]


def _text(expression: Expression) -> Tuple[str, int]:
    kind, data, parts = expression._kind, expression._data, expression._parts
    if kind == "root":
        return data, _TIGHTEST
    if kind == "constant":
        negative = isinstance(data, (int, float)) and data < 0
        return _constant_text(data), _UNARY_PRECEDENCE if negative else _CONSTANT_PRECEDENCE
    if kind == "record":
        return f"<{getattr(data, '__name__', 'function')}>", _TIGHTEST
    if kind == "binary":
        level = _PRECEDENCE[data]
        # A comparison of comparisons would be a chain; a power binds its right side first.
        left = level + 1 if data == "**" or level == 1 else level
        right = level if data == "**" else level + 1
        return f"{_inside(parts[0], left)} {data} {_inside(parts[1], right)}", level
    if kind == "unary":
        return f"{data}{_inside(parts[0], _UNARY_PRECEDENCE)}", _UNARY_PRECEDENCE
    if kind == "function":
        return f"{data}({', '.join(text(part) for part in parts)})", _TIGHTEST
    head = _inside(parts[0], _TIGHTEST)
    rest = ", ".join(text(part) for part in parts[1:])
    if kind == "item":
        return f"{head}[{rest}]", _TIGHTEST
    if kind == "call":
        return f"{head}({rest})", _TIGHTEST
    if kind == "attribute":
        return f"{head}.{data}", _TIGHTEST
    return f"{head}.{data}({rest})", _TIGHTEST


def _constant_text(value: Any) -> str:
    if isinstance(value, slice):
        ends = [value.start, value.stop] + ([value.step] if value.step is not None else [])
        return ":".join("" if end is None else repr(end) for end in ends)
    if isinstance(value, type):
        return value.__name__
    return repr(value)


def _inside(expression: Expression, level: int) -> str:
    inner, own = _text(expression)
    return f"({inner})" if own < level else inner


_AST_BINARY = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_AST_UNARY = {ast.UAdd: "+", ast.USub: "-", ast.Invert: "~"}
_TYPES = {kind.__name__: kind for kind in (int, float, str, bool, list, dict, tuple, bytes)}
_MAX_TEXT = 10_000


def parse(source: str) -> Expression:
    """Reads an expression: the names R, M and C, literals, operators and methods. Nothing of it is
    run. Raises ValueError."""
    if len(source) > _MAX_TEXT:
        raise ValueError(f"an expression of {len(source)} characters; {_MAX_TEXT} are the limit")
    try:
        tree = ast.parse(source.strip(), mode="eval")
        return _constant_or_expression(_read(tree.body, source))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"not an expression: {source!r} ({error})") from None


def _read(node: ast.AST, source: str) -> Any:
    if isinstance(node, ast.Constant):
        return Expression("constant", node.value)
    if isinstance(node, ast.Name) and node.id in _ROOTS:
        return Expression("root", node.id)
    if isinstance(node, ast.Name) and node.id in _TYPES:
        return Expression("constant", _TYPES[node.id])
    if isinstance(node, ast.BinOp) and type(node.op) in _AST_BINARY:
        symbol = _AST_BINARY[type(node.op)]
        return Expression("binary", symbol, (_read(node.left, source), _read(node.right, source)))
    if isinstance(node, ast.UnaryOp) and type(node.op) in _AST_UNARY:
        return _read_unary(node, source)
    if isinstance(node, ast.Compare):
        return _read_comparison(node, source)
    if isinstance(node, ast.Subscript):
        return Expression("item", None, (_read(node.value, source), _read_key(node.slice, source)))
    if isinstance(node, ast.Attribute) and not node.attr.startswith("_"):
        return Expression("attribute", node.attr, (_read(node.value, source),))
    if isinstance(node, ast.Call) and not node.keywords:
        return _read_call(node, source)
    return _refuse(node, source)


def _read_unary(node: ast.UnaryOp, source: str) -> Expression:
    operand = _read(node.operand, source)
    number = operand._kind == "constant" and isinstance(operand._data, (int, float))
    if number and isinstance(node.op, ast.USub):
        return Expression("constant", -operand._data)
    return Expression("unary", _AST_UNARY[type(node.op)], (operand,))


def _read_comparison(node: ast.Compare, source: str) -> Expression:
    mixed = any(
        isinstance(side, ast.BinOp) and isinstance(side.op, (ast.BitAnd, ast.BitOr))
        and not _has_parentheses(side, source)
        for side in [node.left, *node.comparators]
    )  # fmt: skip
    if mixed or len(node.ops) > 1:
        raise ValueError(
            f"{source!r}: & and | bind tighter than comparisons, and comparisons make no chains: "
            "put each comparison in parentheses, as in (R['a'] > 1) & (R['b'] > 2)"
        )
    if type(node.ops[0]) not in _AST_BINARY:
        return _refuse(node, source)
    symbol = _AST_BINARY[type(node.ops[0])]
    return Expression(
        "binary", symbol, (_read(node.left, source), _read(node.comparators[0], source))
    )


def _has_parentheses(node: ast.AST, source: str) -> bool:
    end = getattr(node, "end_col_offset", 0)
    before = source.strip().encode()[: getattr(node, "col_offset", 0)].rstrip()
    after = source.strip().encode()[end:].lstrip()
    return before.endswith(b"(") and after.startswith(b")")


def _read_key(node: ast.AST, source: str) -> Expression:
    if isinstance(node, ast.Slice):
        ends = [
            None if end is None else ast.literal_eval(end)
            for end in (node.lower, node.upper, node.step)
        ]
        return Expression("constant", slice(*ends))
    return _read(node, source)


def _read_call(node: ast.Call, source: str) -> Expression:
    arguments = tuple(_read(argument, source) for argument in node.args)
    function = node.func
    if isinstance(function, ast.Name) and function.id in _FUNCTIONS:
        return Expression("function", function.id, arguments)
    if isinstance(function, ast.Attribute):
        head = _read(function.value, source)
        if function.attr in _METHODS and not arguments:
            return Expression("method", function.attr, (head,))
        if function.attr in _METHODS_OF_ONE and len(arguments) == 1:
            return Expression("method1", function.attr, (head, *arguments))
    return _refuse(node, source)


def _refuse(node: ast.AST, source: str) -> NoReturn:
    part = ast.get_source_segment(source.strip(), node) if isinstance(node, ast.expr) else None
    hint = ": write &, | and ~" if isinstance(node, (ast.BoolOp, ast.UnaryOp)) else ""
    raise ValueError(f"{source!r}: {part or type(node).__name__!r} is not part of the language{hint}")
