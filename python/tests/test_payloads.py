"""What may be an argument of an event: every type, as it arrives in another process."""
import json

import numpy as np
import pytest

import divisi

CASES = '''
import collections, dataclasses, datetime, decimal, enum, fractions, struct, uuid
import numpy as np

@dataclasses.dataclass
class Thing:
    name: str
    array: object = None
    def __eq__(self, other):
        return type(other) is Thing and same(self.name, other.name) and same(self.array, other.array)

class Colour(enum.IntEnum):
    RED = 1

class Words(list):
    pass

Point = collections.namedtuple("Point", "x y")

def same(one, other):
    """Equal in type and value, all the way down, and bit by bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack("d", one) == struct.pack("d", other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(same, one.items(), other.items()))
    if isinstance(one, np.ndarray) or isinstance(one, np.generic):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return False
        if one.dtype.hasobject or one.dtype.char == "g":  # a long double has bytes that mean nothing
            return one.tolist() == other.tolist()
        return one.tobytes() == other.tobytes()
    return one == other

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]

def array(dtype, *shape):
    count = int(np.prod(shape))
    return (np.arange(count) % 120).astype(dtype).reshape(shape)

def nested(depth):
    value = 7
    for _ in range(depth):
        value = [value]
    return value

def plain():
    """What travels by the native codec."""
    yield from [None, True, False]
    for number in (0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 65535, 2**31 - 1, 2**31, -2**31, 2**32 - 1, 2**32,
                   2**53 + 1, 2**63 - 1, -2**63, 2**63, 2**64 - 1):
        yield number
    yield from [0.0, -0.0, 0.1, 1e308, 5e-324, float("inf"), float("-inf"), float("nan")]
    yield from ["", "a", "h\\u00e9llo \\u4e16\\u754c \\U0001f600", "with\\0nul", "x" * 31, "x" * 32, "x" * 255, "x" * 65536]
    for size in (0, 1, 31, 32, 255, 256, 8191, 8192, 8193, 65535, 65536, 262144, 262145, 1 << 20, 10 << 20):
        yield bytes(range(256)) * (size // 256) + bytes(size % 256)
    yield [bytes(8192), b"", bytes(100000)]
    yield from [[], (), {}, [[]], ((),), [()], ({},), {"a": {}}]
    yield [1, "two", 3.0, None, True, b"six", [7, (8, {"nine": 10})]]
    yield (1, (2, (3, [4, (5,)])))
    yield {"a": [1, {"b": (2, None)}], "c": {"d": {"e": 1.5}}}
    yield {1: "int", None: "none", (1, "t"): "tuple", 1.5: "float", b"b": "bytes", True + 1: "two", "": "empty"}
    yield list(range(100000))
    yield [[i, str(i)] for i in range(1000)]
    yield {str(i): i for i in reversed(range(1000))}  # keeps its order
    yield nested(50)
    yield [np.arange(3), {"deep": (np.float32(1.5), np.zeros((2, 2)))}]
    for dtype in DTYPES:
        yield array(dtype, 7)
        yield array(dtype, 3, 5)
        yield array(dtype, 50, 50, 50)
        yield array(dtype)  # no dimensions
        yield array(dtype, 0)
        yield array(dtype, 4)[2]  # a scalar
    yield np.array([np.nan, np.inf, -np.inf, -0.0])
    yield np.zeros((0, 3))
    yield np.zeros((3, 0, 2), dtype="i4")
    yield np.arange(64).reshape((2,) * 6)
    yield np.zeros((1,) * 32)
    base = np.arange(60000.0).reshape(200, 300)
    for odd in (base[::2], base[:, ::3], base.T, base[::-1], base[5:7, 3:9], np.asfortranarray(base), base[:, 0]):
        yield odd
    yield np.asfortranarray(base[:3, :3])
    yield np.broadcast_to(np.arange(3), (4, 3))
    frozen = np.arange(10000)
    frozen.setflags(write=False)
    yield frozen
    yield np.frombuffer(bytes(20000), dtype="i4")

def pickled():
    """What needs pickle."""
    yield from [2**64, -2**63 - 1, 10**40, -10**40, [2**64], {"deep": [(10**30,)]}]
    yield from [{1, 2}, frozenset("ab"), complex(1, -2), range(5), bytearray(b"abc"), bytearray(100000), ...]
    yield from ["lone \\ud800 surrogate", ["\\udcff"], {"\\ud800": 1}]
    yield from [Colour.RED, Thing("x"), Point(1, 2), Words([1]), collections.OrderedDict(a=1)]
    yield from [decimal.Decimal("1.5"), fractions.Fraction(1, 3), uuid.UUID(int=5), datetime.timedelta(1)]
    yield datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc)
    yield [1, {"deep": Thing("y", (1, 2))}]
    yield Thing("with an array", np.arange(100000))
    yield Thing("with a small array", np.arange(10))
    yield Thing("with an odd one", np.arange(10000).reshape(100, 100).T)
    yield from [same, len, Thing, int, json.dumps]
    yield nested(200)
    yield np.arange(5).astype(">f8")
    yield np.arange(5).astype("g")
    yield np.array(["2020-01-01", "2021-01-01"], dtype="M8[D]")
    yield np.array([1, 2], dtype="m8[s]")
    yield np.array(["abc", "d"])
    yield np.array([b"abc", b"d"])
    yield np.array([{1}, None, "x"], dtype=object)
    yield np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    yield np.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])[0]
    yield np.matrix([[1, 2]])
    yield np.rec.array([(1, 2.5)], dtype=[("a", "i4"), ("b", "f8")])
    yield np.str_("text")
    yield np.longdouble(1.5)

def scalars():
    """Scalars of numpy that are no numbers: they need pickle, too."""
    yield np.bytes_(b"bytes")
    yield np.datetime64("2020-01-01")
    yield np.timedelta64(5, "s")

def describe(value):
    return f"{type(value).__name__} {value!r:.80}"
'''

ARRIVE = CASES + """
def main(kinds):
    cases = [value for kind in kinds for value in globals()[kind]()]
    failed, count = [], 0
    end = threading.Event()
    def receive(i, value):
        nonlocal count
        count += 1
        if not same(value, cases[i]):
            failed.append(f"{describe(cases[i])} came as {describe(value)}")
    def receive_more(i, value, more, **kwargs):
        receive(i, value)
        if not same(more, cases[i]):
            failed.append(f"{describe(cases[i])} came as {describe(more)} in a tuple")
        if list(kwargs) != ["key"] or not same(kwargs["key"], cases[i]):
            failed.append(f"{describe(cases[i])} came as {describe(kwargs)} as a keyword")
    def receive_one(value):
        nonlocal count
        if not same(value, cases[count]):
            failed.append(f"{describe(cases[count])} came alone as {describe(value)}")
        count += 1
    with task.start():
        task.on("case", receive)
        task.on("more", receive_more)
        task.on("one", receive_one)
        task.on("end", end.set)
        task.router.barrier()
        if me() == 1:
            for value in cases:
                task.emit("one", value, only_remote=True)
            task.emit("end", only_remote=True)
            task.router.barrier()
            for i, value in enumerate(cases):
                task.emit("case", i, value, only_remote=True)
                task.emit("more", i, value, value, key=value, only_remote=True)
            task.emit("end", only_remote=True)
            task.router.barrier()
        else:
            assert end.wait(60)
            alone, count = count, 0
            end.clear()
            task.router.barrier()
            assert end.wait(60)
            tell(failed, len(cases) - alone, 2 * len(cases) - count)
            task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main, sys.argv[2:])
"""


def tcp(ports, **more):
    """Options of two workers over tcp."""
    return json.dumps(
        {"n_parallel_workers": 2, "protocol": "tcp", "address": "127.0.0.1", "ports": ports, "log_level": "error", **more}
    )


def test_every_type_arrives_as_it_was(run_program):
    ended = run_program(ARRIVE, json.dumps({"n_parallel_workers": 2}), "plain", "pickled").ok()
    assert ended.results == [[[], 0, 0]]


def test_scalars_of_numpy_that_are_no_numbers(run_program):
    ended = run_program(ARRIVE, json.dumps({"n_parallel_workers": 2}), "scalars").ok()
    assert ended.results == [[[], 0, 0]]


def test_plain_values_need_no_pickle(run_program, free_ports):
    ended = run_program(ARRIVE, tcp(free_ports(2)), "plain").ok()  # no secret: a pickle would be refused
    assert ended.results == [[[], 0, 0]]


@pytest.mark.parametrize("more", [{"secret": "s3cret"}, {"allow_pickle": True}], ids=str)
def test_pickles_over_tcp_with_a_secret_or_when_allowed(run_program, free_ports, more):
    ended = run_program(ARRIVE, tcp(free_ports(2), **more), "pickled").ok()
    assert ended.results == [[[], 0, 0]]


def test_pickles_over_tcp_without_a_secret_are_refused_at_the_sender(run_program, free_ports):
    ended = run_program(
        CASES
        + """
def main():
    heard = Gathered()
    with task.start():
        task.on("case", lambda *args, **kwargs: heard.add(args[0]))
        task.on("end", heard.add)
        task.router.barrier()
        if me() == 1:
            passed, texts = [], set()
            for value in pickled():
                for emit in (lambda: task.emit("case", value), lambda: task.emit("case", 1, key=[value], only_remote=True),
                             lambda: task.router.emit("case", value)):
                    try:
                        emit()
                        passed.append(describe(value))
                    except TypeError as error:
                        texts.add(str(error))
            task.emit("case", "plain", only_remote=True)
            tell(passed, [text for text in texts if not ("'case'" in text and "secret" in text and "allow_pickle" in text)])
            tell(next(text for text in texts if "Thing" in text))
            task.emit("end", "end", only_remote=True)
        else:
            while not heard or heard[-1] != "end":
                heard.wait(len(heard) + 1)
            tell(list(map(str, heard)))
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main)
""",
        tcp(free_ports(2)),
    ).ok()
    assert [[], []] in ended.results, ended
    assert [["plain", "end"]] in ended.results, ended
    assert any("carries a" in values[0] for values in ended.results if isinstance(values[0], str))


def test_more_than_255_arrays_in_one_event(run_program):
    ended = run_program(
        """
import numpy as np

def arrays(count):
    return [np.full(1024 + i % 3, i, dtype="f8") for i in range(count)]

def equal(got, count):
    return len(got) == count and all(np.array_equal(a, b) for a, b in zip(got, arrays(count)))

def main():
    heard = Gathered()
    router = task.router
    with task.start():
        task.on("native", lambda count, got: heard.add(equal(got, count)))
        task.on("pickled", lambda got: heard.add(equal(got["w"], got["count"]) and got["s"] == {1}))
        task.on("bytes", lambda *got: heard.add([len(each) for each in got] == [9000] * len(got)))
        router.serve("get", arrays)
        router.barrier()
        if me() == 1:
            for count in (254, 255, 256, 300, 1000):
                task.emit("native", count, arrays(count), only_remote=True)
                task.emit("pickled", {"w": arrays(count), "count": count, "s": {1}}, only_remote=True)
                task.emit("bytes", *[bytes(9000)] * count, only_remote=True)
                assert equal(router.call(0, "get", count), count)
        else:
            heard.wait(15)
            tell(list(heard))
        router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results == [[[True] * 15]]


def test_the_pickle_of_a_stranger_is_refused_without_a_secret(start_program, free_ports, tmp_path):
    program = """
class Bomb:
    def __reduce__(self):
        return open, (sys.argv[2], "w")

def main():
    heard = Gathered()
    with task.start():
        task.on("case", heard.add)
        if me() == 1:  # this one trusts everybody, so it sends pickles
            assert task.router.wait_for_peers(1)
            task.emit("case", Bomb(), only_remote=True)
            task.emit("case", {"keyword": Bomb()}, key=Bomb(), only_remote=True)
            task.router.emit("case", Bomb())
            task.emit("case", "plain", only_remote=True)
        else:
            task.router.on("case", heard.add)
            heard.wait(1)
            tell(list(map(str, heard)), [peer["refused"] for peer in task.router.stats()["peers"]])
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1, protocol="tcp", address="127.0.0.1", **json.loads(sys.argv[1]))(main)
"""
    victim, other = free_ports(2)
    touched = tmp_path / "touched"
    one = start_program(program, json.dumps({"ports": [victim]}), str(touched))
    two = start_program(
        program,
        json.dumps({"ports": [other], "node_ids": [1], "attach_to": [f"127.0.0.1:{victim}"], "allow_pickle": True}),
        str(touched),
    )
    two.end().ok()
    assert one.end().ok().results == [[["plain"], [3]]]
    assert not touched.exists()


def test_arrays_arrive_as_read_only_views(run_program):
    ended = run_program(
        CASES
        + """
def root(array):
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return type(array).__name__ if not isinstance(array, memoryview) else type(array.obj).__name__

def main():
    heard = Gathered()
    with task.start():
        pickled = Gathered()
        task.on("array", heard.add)
        task.on("pickled", pickled.add)
        task.router.barrier()
        if me() == 1:
            for size in (1, 100, 8192, 1 << 20):
                task.emit("array", np.arange(size), only_remote=True)
            task.emit("array", [np.arange(9.0).reshape(3, 3), {"x": np.arange(100000)}], only_remote=True)
            task.emit("pickled", {"set": {1}, "x": np.arange(100000)}, only_remote=True)
        else:
            heard.wait(5)
            pickled.wait(1)
            tell(pickled[0]["x"].flags.writeable, int(pickled[0]["x"].sum()))
            arrays = heard[:4] + [heard[4][0], heard[4][1]["x"]]
            tell([array.flags.writeable or array.flags.owndata for array in arrays], [root(array) for array in arrays])
            try:
                arrays[0][0] = 1
            except ValueError as error:
                tell("read-only" in str(error))
            task.router.barrier()
            # They stay as they are, long after the callback and while more arrives.
            heard.wait(25)
            tell(all((array == np.arange(array.size).reshape(array.shape)).all() for array in arrays))
        if me() == 1:
            task.router.barrier()
            for i in range(20):
                task.emit("array", np.full(1 << 18, i), only_remote=True)
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results == [[False, 4999950000], [[False] * 6, ["Buffer"] * 6], [True], [True]]


def test_what_is_changed_right_after_the_emit_arrives_as_it_was(run_program):
    ended = run_program(
        CASES
        + """
def main():
    heard, wrong = [0], []
    def receive(i, *values):
        heard[0] += 1
        for value in values:
            array = value.array if isinstance(value, Thing) else np.frombuffer(value, "u1") if isinstance(value, bytearray) \\
                else np.array(value)
            if array.size == 0 or not (array == i % 100).all():
                wrong.append([i, describe(value)])
    end = threading.Event()
    with task.start():
        task.on("e", receive)
        task.on("end", end.set)
        task.router.barrier()
        if me() == 1:
            i = 0
            for size in (1, 10, 1023, 1024, 1025, 10000, 100000, 1000000):
                owned = np.zeros(size)
                wide = np.zeros((2, size))
                for _ in range(10):
                    things = [owned, wide[:, ::2] if size > 1 else wide, np.asfortranarray(wide), Thing("t", owned),
                              bytearray(size)]
                    for thing in things:
                        fill(thing, i % 100)
                        task.emit("e", i, thing, only_remote=True)
                        fill(thing, 101)
                        i += 1
            numbers = [i % 100] * 1000
            task.emit("e", i, numbers, only_remote=True)
            numbers[:] = [101] * 1000
            task.emit("end", only_remote=True)
            tell(1, i + 1)
        else:
            assert end.wait(60)
            tell(0, [heard[0], wrong[:5]])
        task.router.barrier()

def fill(thing, value):
    if isinstance(thing, Thing):
        thing = thing.array
    if isinstance(thing, bytearray):
        thing[:] = bytes([value]) * len(thing)
    else:
        thing[...] = value

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    told = ended.of_nodes()
    assert told[0] == [told[1], []]


def test_a_read_only_view_of_a_writable_array_is_no_promise(run_program):
    ended = run_program(
        CASES
        + """
def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 1:
            owner = np.zeros(100000)
            view = owner.view()
            view.setflags(write=False)
            for i in range(20):
                owner[:] = i
                task.emit("e", view, only_remote=True)
                owner[:] = -1
        else:
            heard.wait(20)
            tell([int(array.min()) for array in heard], [int(array.max()) for array in heard])
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results == [[list(range(20))] * 2]


def test_an_array_that_is_thawed_after_the_emit_arrives_as_it_was(run_program):
    ended = run_program(
        CASES
        + """
def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 1:
            array = np.zeros(500000)
            for i in range(20):
                array.setflags(write=True)
                array[:] = i
                array.setflags(write=False)
                task.emit("e", array, only_remote=True)
        else:
            heard.wait(20)
            tell([int(array.min()) for array in heard], [int(array.max()) for array in heard])
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results == [[list(range(20))] * 2]


def test_a_frozen_array_cannot_be_thawed_and_is_not_copied(run_program):
    array = np.arange(20000.0).reshape(100, 200)
    view = divisi.frozen(array)
    assert np.shares_memory(view, array) and (view == array).all() and view.dtype == array.dtype
    with pytest.raises(ValueError):
        view.setflags(write=True)
    turned = divisi.frozen(array.T)  # not C-contiguous: a copy of its own
    assert (turned == array.T).all() and not np.shares_memory(turned, array)
    for odd in (np.zeros(0), np.zeros((3, 0)), np.array(5), np.zeros(4, "M8[s]")):
        assert divisi.frozen(odd).shape == odd.shape and divisi.frozen(odd).dtype == odd.dtype
    with pytest.raises(TypeError, match="objects"):
        divisi.frozen(np.array([object()]))
    ended = run_program(
        CASES
        + """
def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 1:
            arrays = [np.full(100000, float(i)) for i in range(20)]
            for array in arrays:
                task.emit("e", divisi.frozen(array), only_remote=True)
        else:
            heard.wait(20)
            tell([int(array.min()) for array in heard], [int(array.max()) for array in heard])
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results == [[list(range(20))] * 2]


def test_unpicklable_payload_is_an_error_of_the_emit(run_program):
    ended = run_program(
        """
def main():
    heard = Gathered()
    with task.start():
        task.on("e", lambda value: heard.add(1))
        task.router.barrier()
        if me() == 1:
            class Local:
                pass
            for bad in (lambda: 0, Local(), threading.Lock(), sys.stdout, (i for i in range(3)), memoryview(b"x")):
                try:
                    task.emit("e", [bad], only_remote=True)
                    tell("passed", repr(bad))
                except Exception as error:
                    tell(type(error).__name__, type(bad).__name__, str(error) != "")
            task.emit("e", 1, only_remote=True)  # nothing is broken
        else:
            heard.wait(1)
        task.router.barrier()
        if me() == 0:
            tell(heard)

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    ).ok()
    assert ended.results[-1] == [[1]]
    assert len(ended.results) == 7
    assert all(values[0] in ("TypeError", "PicklingError", "AttributeError") and values[2] for values in ended.results[:-1])


def test_a_payload_that_cannot_be_read_is_an_error_of_the_receiver(run_program):
    ended = run_program(
        """
class Trap:
    def __reduce__(self):
        return spring, (os.getpid(),)

def spring(pid):
    if os.getpid() != pid:
        raise RuntimeError("cannot be read")
    return 1

def main():
    heard = Gathered()
    with task.start():
        task.on("e", heard.add)
        task.router.barrier()
        if me() == 1:
            task.emit("e", Trap(), only_remote=True)
            task.emit("e", 2, only_remote=True)
        else:
            heard.wait(1)
            try:
                task.emit("x")
            except RuntimeError as error:
                tell(heard, str(error))
        task.router.barrier()

if __name__ == "__main__":
    try:
        Parallel.runner(n_parallel_workers=2)(main)
    except WorkerError as error:
        tell(str(error))
"""
    )
    assert ended.results[0] == [[2], "cannot be read"], ended


def test_local_listeners_get_the_very_objects(task):
    got = []
    thing, lock = object(), __import__("threading").Lock()
    with task.start():
        task.on("e", lambda *args, **kwargs: got.append((args, kwargs)))
        task.emit("e", thing, lock, key=[thing])
    assert got[0][0][0] is thing and got[0][0][1] is lock and got[0][1]["key"][0] is thing


TORCH = """
import numpy as np
if __name__ != "__main__":  # the launcher does not need it
    import torch

def cases():
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
                  torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128):
        yield torch.arange(6).to(dtype)
        yield torch.arange(24).to(dtype).reshape(2, 3, 4)
        yield torch.ones(100000).to(dtype)
        yield torch.tensor(1).to(dtype)
        yield torch.zeros(0).to(dtype)
        yield torch.zeros(3, 0).to(dtype)
        yield torch.arange(24).to(dtype).reshape(4, 6).t()
        yield torch.arange(24).to(dtype)[::3]
    yield torch.tensor([float("nan"), float("inf")], dtype=torch.bfloat16)
    yield torch.randn(3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    yield torch.arange(10000.0).expand(2, 10000)
    yield {"state": {"weight": torch.ones(3, 3), "bias": [torch.zeros(3), np.zeros(3)]}}

def nests():
    yield torch.nn.Linear(2, 2).state_dict()
    yield torch.nn.Linear(2, 2, dtype=torch.bfloat16).state_dict()
    yield [torch.nn.Parameter(torch.ones(100000))]

def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return (one == other).all()
    return one.dtype == other.dtype and one.shape == other.shape and torch.allclose(
        one.to(torch.complex128), other.to(torch.complex128), equal_nan=True)

def main(part):
    torch.manual_seed(1)
    values, failed, changed = list(globals()[part]()), [], Gathered()
    end = threading.Event()
    count = 0
    def receive(i, value):
        nonlocal count
        count += 1
        if not same(value, values[i]):
            failed.append([str(values[i]), str(value)])
    with task.start():
        task.on("e", receive)
        task.on("changed", changed.add)
        task.on("end", end.set)
        task.router.barrier()
        if me() == 1:
            for i, value in enumerate(values):
                task.emit("e", i, value, only_remote=True)
            for dtype in (torch.float32, torch.bfloat16, torch.int8):
                for size in (10, 100000):
                    tensor = torch.ones(size).to(dtype)
                    task.emit("changed", tensor, only_remote=True)
                    tensor.fill_(7)
            task.emit("end", only_remote=True)
        else:
            assert end.wait(60)
            tell(failed, len(values) - count, [[int(tensor.min()), int(tensor.max())] for tensor in changed])
        task.router.barrier()

if __name__ == "__main__":
    Parallel.runner(**json.loads(sys.argv[1]))(main, sys.argv[2])
"""


def test_torch_tensors_need_no_pickle_and_no_warning(run_program, free_ports):
    ended = run_program(TORCH, tcp(free_ports(2)), "cases", timeout=180).ok()
    assert ended.results == [[[], 0, [[1, 1]] * 6]]
    assert "Warning" not in ended.err, ended.err


def test_torch_state_dicts_and_parameters(run_program):
    ended = run_program(TORCH, json.dumps({"n_parallel_workers": 2}), "nests", timeout=180).ok()
    assert ended.results == [[[], 0, [[1, 1]] * 6]]
