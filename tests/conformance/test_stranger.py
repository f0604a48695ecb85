"""A node written from docs/wire.md alone joins real jobs: is the page right and complete?

DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""

import contextlib
import hashlib
import hmac
import itertools
import os
import pathlib
import queue
import random
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from collections import namedtuple

import msgpack

HELLO, PROOF, WELCOME, REJECT = 1, 2, 3, 4
EVENT, CHUNK, TOPIC, GAP = 0x10, 0x11, 0x12, 0x13
ACK, PING, SUBSCRIBE, UNSUBSCRIBE, READY, ROLES, BYE, LABELS = 0x20, 0x21, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28
MORE, KWARGS, TRACE, DROPPED = 0x01, 0x02, 0x04, 0x08
PREAMBLE = b"DIVISI\x02\x00"
PART = 256 * 1024
DEADLINE = 60  # seconds; only a hang ever waits for it

Frame = namedtuple("Frame", "kind flags codec buffers number content")
Event = namedtuple("Event", "topic args kwargs codec sizes parts")


class Refused(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)
        self.code = code


def frame(kind, content=b"", flags=0, codec=0, buffers=0, number=0):
    return struct.pack("<BBBBIQ", kind, flags, codec, buffers, len(content), number) + content


def packed(kind, value, **header):
    return frame(kind, msgpack.packb(value), **header)


class Stranger:
    """One life of a node: what it has sent and received outlives its connections."""

    def __init__(self, node, secret=b"", job="", window=4 << 20, topics=()):
        self.me = {"job": job, "node": node, "auth": bool(secret),
                   "incarnation": int.from_bytes(os.urandom(8), "little") or 1}
        self.secret, self.window, self.topics = secret, window, topics
        self.last, self.names, self.events, self.parts, self.dropped = 0, {}, [], [], 0  # received
        self.sent, self.unacknowledged = 0, {}  # number -> frame
        self.heard, self.peer_ready, self.acknowledging = [], False, True

    def connect(self, sock, dials=True, **lies):
        self.sock, self.stream, self.counted, self.spent = sock, bytearray(), 0, 0
        me = {**self.me, "nonce": os.urandom(32), **lies}
        rest = {"resume": self.last, "credit": self.window, "listen": "", "labels": ["stranger"]}
        if dials:
            self.write(PREAMBLE + packed(HELLO, me))
        if self.exactly(8) != PREAMBLE:
            raise ConnectionError("not this version of the protocol")
        other = self.greeting(HELLO)
        nonces = me["nonce"] + other["nonce"] if dials else other["nonce"] + me["nonce"]

        def proof(side, prover, verifier):
            ids = struct.pack("<4Q", *(x[k] for x in (prover, verifier) for k in ("node", "incarnation")))
            return hmac.digest(self.secret, b"divisi " + side + nonces + ids + me["job"].encode(), hashlib.sha256)

        sides = (b"dialler", b"acceptor") if dials else (b"acceptor", b"dialler")
        mine, theirs = proof(sides[0], me, other), proof(sides[1], other, me)
        self.write(packed(PROOF, {"proof": mine}) if dials else PREAMBLE + packed(HELLO, me))
        told = self.greeting(PROOF)
        self.proved = hmac.compare_digest(told["proof"], theirs)
        self.write(packed(WELCOME, rest) if dials else packed(PROOF, {"proof": mine, **rest}))
        self.peer = {**other, **(told if dials else self.greeting(WELCOME))}
        self.credit = self.peer["credit"]
        self.forget(self.peer["resume"])
        self.write(packed(SUBSCRIBE, self.topics, flags=1))
        for data in list(self.unacknowledged.values()):
            self.spend(data)

    def greeting(self, kind):
        got = self.read_frame()
        if got.kind == REJECT:
            raise Refused(**msgpack.unpackb(got.content))
        if got.kind != kind:
            raise ConnectionError(f"expected {kind}, received {got}")
        return msgpack.unpackb(got.content)

    def write(self, data):
        self.sock.sendall(data)

    def exactly(self, size):
        while len(self.stream) < size:
            data = self.sock.recv(1 << 20)
            if not data:
                raise ConnectionError("the peer has closed")
            self.stream += data
        data, self.stream = bytes(self.stream[:size]), self.stream[size:]
        return data

    def read_frame(self):
        pads = 0
        while (kind := self.exactly(1)) == b"\0":
            pads += 1
        kind, flags, codec, buffers, length, number = struct.unpack("<BBBBIQ", kind + self.exactly(15))
        if EVENT <= kind <= GAP:
            self.counted += pads + 16 + length
        return Frame(kind, flags, codec, buffers, number, self.exactly(length))

    def step(self):
        """Reads and handles one frame."""
        got = self.read_frame()
        if EVENT <= got.kind <= GAP:
            self.sequenced(got)
            if self.acknowledging:
                self.acknowledge()
        elif got.kind == ACK:
            self.credit = struct.unpack("<Q", got.content)[0]
            self.forget(got.number)
        elif got.kind == SUBSCRIBE:
            self.heard = [] if got.flags & 1 else self.heard
            self.heard += msgpack.unpackb(got.content)
        elif got.kind == READY:
            self.peer_ready = True
        elif got.kind == PING:
            self.write(frame(PING))  # an idle peer sends one a second: often enough for us as well
        elif got.kind == BYE:
            raise ConnectionAbortedError(*msgpack.unpackb(got.content or b"\x90"))
        elif got.kind not in (UNSUBSCRIBE, ROLES, LABELS):
            raise AssertionError(f"not due: {got}")
        return got

    def sequenced(self, got):
        assert got.number == self.last + 1, f"number {got.number} behind {self.last}"
        self.last = got.number
        assert (got.kind == CHUNK) == bool(self.parts), f"a message of {len(self.parts)} parts, then {got.kind}"
        if got.kind == TOPIC:
            self.names[struct.unpack_from("<I", got.content)[0]] = got.content[4:].decode()
        elif got.kind == GAP:
            self.dropped += struct.unpack("<Q", got.content)[0]
        elif got.flags & DROPPED:
            self.dropped += 1
        else:
            self.parts.append(got)
            if not got.flags & MORE:
                self.events.append(self.decode(*self.parts))
                self.parts = []

    def decode(self, head, *chunks):
        start = 8 if chunks else 0
        message, at = head.content[start:] + b"".join(chunk.content for chunk in chunks), 8
        assert not chunks or struct.unpack_from("<Q", head.content)[0] == len(message) > PART * len(chunks)
        topic, length = struct.unpack_from("<II", message)
        if not topic:
            at = 10 + struct.unpack_from("<H", message, 8)[0]
        name = self.names[topic] if topic else message[10:at].decode()
        at += 8 if head.flags & TRACE else 0
        count = head.buffers
        if count == 255:
            count, at = struct.unpack_from("<Q", message, at)[0], at + 8
        sizes = struct.unpack_from(f"<{count}Q", message, at)
        at += 8 * count
        body, at, buffers = message[at:at + length], at + length, []
        for size in sizes:
            at += -at % 64
            buffers.append(message[at:at + size])
            at += size
        assert at == len(message), "bytes behind the message"

        def extension(code, data):
            return buffers[struct.unpack("<I", data)[0]] if code == 1 else msgpack.ExtType(code, data)

        args = msgpack.unpackb(body, ext_hook=extension) if head.codec else [body]
        return Event(name, args, args.pop() if head.flags & KWARGS else {}, head.codec, sizes, 1 + len(chunks))

    def acknowledge(self):
        self.write(frame(ACK, struct.pack("<Q", self.counted + self.window), number=self.last))

    def forget(self, number):
        self.unacknowledged = {n: data for n, data in self.unacknowledged.items() if n > number}

    def until(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end, "waited too long"
            self.step()

    def event(self):
        self.until(lambda: self.events)
        return self.events.pop(0)

    def spend(self, data):
        self.until(lambda: self.spent + len(data) <= self.credit)
        self.spent += len(data)
        self.write(data)

    def number(self, kind, content, **header):
        self.sent += 1
        self.unacknowledged[self.sent] = frame(kind, content, number=self.sent, **header)
        return self.unacknowledged[self.sent]

    def frames(self, topic, *args, kwargs=None, raw=False, buffers=(), trace=None):
        """The frames of one event. They count as sent: the next connection repeats what was lost."""
        body = args[0] if raw else msgpack.packb([*args, kwargs] if kwargs else args)
        name = b"" if isinstance(topic, int) else struct.pack("<H", len(topic.encode())) + topic.encode()
        message = bytearray(struct.pack("<II", 0 if name else topic, len(body)) + name)
        message += b"" if trace is None else struct.pack("<Q", trace)
        message += struct.pack("<Q", len(buffers)) if len(buffers) >= 255 else b""
        message += struct.pack(f"<{len(buffers)}Q", *map(len, buffers)) + body
        for buffer in buffers:
            message += bytes(-len(message) % 64) + buffer
        first, *rest = [message[at:at + PART] for at in range(0, len(message), PART)]
        flags = (KWARGS if kwargs else 0) | (0 if trace is None else TRACE) | (MORE if rest else 0)
        first = (struct.pack("<Q", len(message)) if rest else b"") + first
        return [self.number(EVENT, first, flags=flags, codec=0 if raw else 1, buffers=min(len(buffers), 255))] + [
            self.number(CHUNK, part, flags=MORE if i < len(rest) else 0) for i, part in enumerate(rest, 1)]

    def emit(self, topic, *args, **options):
        for data in self.frames(topic, *args, **options):
            self.spend(data)

    def leave(self):
        self.until(lambda: not self.unacknowledged)
        self.write(frame(BYE))
        self.sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            self.until(lambda: False)
        self.sock.close()


# The C++ node: answers what it is asked, so that both directions can be seen from here.
PACKAGE = r"""
#include <divisi/divisi.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

using divisi::only_remote;
using divisi::task;

divisi::Buffer pattern(std::size_t size) {
  divisi::Buffer bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes.mutable_data()[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

std::uint64_t sum_of(const divisi::Buffer& bytes) {
  std::uint64_t sum = 0;
  for (const std::byte b : bytes.bytes()) sum += static_cast<std::uint64_t>(b);
  return sum;
}

void answer() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const auto running = task.start();
  divisi::Parallel& router = task.router();
  std::vector<divisi::Subscription> kept;
  for (const char* const event : {"peer_joined", "peer_lost", "peer_back", "peer_left"}) {
    kept.push_back(router.on(event, [event](int node) { std::printf("%s %d\n", event, node); }));
  }
  kept.push_back(router.on("bare", [&](int value) { router.emit("bare", value + 1); }));

  std::vector<int> numbers;
  task.on("number", [&](int number) { numbers.push_back(number); });
  task.on("tell", [&] { task.emit("numbers", only_remote, numbers); });
  task.on("greet", [](const std::string& name, const divisi::Kwargs& more) {
    std::printf("greeted by %s with %zu keywords\n", name.c_str(), more.size());
    task.emit("greeting", only_remote, "Hi " + name, divisi::kw("more", more), divisi::kw("ok", true));
  });
  task.on("count", [](int first, int last) {
    for (int i = first; i <= last; ++i) task.emit("counted", only_remote, i);
  });
  task.on("newest", [](int last) {
    const divisi::EmitOptions newest{.only_remote = true, .policy = divisi::Policy::kLatestOnly};
    for (int i = 0; i <= last; ++i) task.emit("state", newest, i);
  });
  task.on("make", [](std::size_t size) {
    task.emit("made", only_remote, size, pattern(size), divisi::kw("also", pattern(10'000)));
  });
  task.on("take", [](int first, const divisi::Buffer& bytes, const divisi::Kwargs& more) {
    task.emit("taken", only_remote, first, bytes.size(), sum_of(bytes), more.size());
  });
  task.on("many", [](const std::vector<divisi::Buffer>& all) { task.emit("many", only_remote, all); });
  task.on("raw", [](const divisi::Buffer& bytes) { task.emit("raw", only_remote, bytes); });
  task.on("tensor", [](const divisi::Tensor& tensor) { task.emit("tensor", only_remote, tensor); });
  task.on("listen", [](int count) {
    for (int i = 0; i < count; ++i) task.on(std::to_string(i) + std::string(240, '.'), [] {});
    task.on("the last", [] {});
    task.emit("listening", only_remote);
    std::printf("listens\n");
  });
  static std::atomic<bool> released{false};
  kept.push_back(router.on("release", [] {
    released = true;
    released.notify_all();
  }));
  task.on("hold", [] {
    released.wait(false);
    released = false;
  });
  task.on("swallow", [](const divisi::Buffer&) {});
  task.on("directed", [] {
    task.emit("to", divisi::Target::to_label("nobody"), "nobody");
    task.emit("to", divisi::Target::to_role("learner"), "a learner");
    task.emit("to", divisi::Target::to_label("strange?"), "a stranger");
    task.emit("to", divisi::Target::to_node(1'000'001), "a million and one");
  });

  std::printf("answers\n");
  task.wait_for("quit", {.timeout = std::chrono::minutes(10)});
  task.emit("ending", only_remote);
}
DIVISI_MAIN(answer)
"""

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
TOPICS = ["bare", *("task." + event for event in (
    "numbers", "greeting", "counted", "state", "made", "taken", "many", "raw", "tensor", "to", "listening", "ending"))]
scratch = directory = None
node_ids = itertools.count(1)


def setUpModule():
    global scratch, directory
    scratch = tempfile.TemporaryDirectory(prefix="divisi_stranger_")
    directory = pathlib.Path(scratch.name)
    (directory / "package").mkdir()
    (directory / "answering.cc").write_text(PACKAGE)
    subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{REPOSITORY}/include",
                    directory / "answering.cc", "-o", directory / "package" / "answering.so",
                    f"-L{BUILD}/lib", "-ldivisi"], check=True)


def tearDownModule():
    scratch.cleanup()


def secret_file(text):
    path = directory / f"secret_{next(node_ids)}"
    path.touch(mode=0o600)
    path.write_text(text)
    return path


class Job:
    """One ditask with one worker. Its log is this process's own standard error."""

    def __init__(self, *arguments):
        while True:
            # Below the ports that the kernel gives to outgoing connections.
            self.port = random.randrange(10_000, 32_000)
            self.lines = queue.Queue()
            self.process = subprocess.Popen(
                [BUILD / "bin" / "ditask", "--package", directory / "package", "--main", "answering.answer",
                 "--address", "127.0.0.1", "--ports", str(self.port), "--log-level", "debug",
                 *map(str, arguments)],
                env={name: value for name, value in os.environ.items()
                     if not name.startswith(("DI_", "SLURM", "DITASK", "DIVISI"))},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True)
            self.reader = threading.Thread(target=self.read)
            self.reader.start()
            # A dialling job waits for its peer; so does a test that made one.
            if "--attach-to" in arguments or self.lines.get(timeout=DEADLINE) is not None:
                return
            self.close()
            if self.process.returncode != 3:  # 3: the port was taken
                raise AssertionError(f"ditask ended with {self.process.returncode}")

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def prints(self, text, within):
        with contextlib.suppress(queue.Empty):
            while text not in self.lines.get(timeout=within):
                pass
            return True
        return False

    def wait_until_printed(self, text):
        end = time.monotonic() + DEADLINE
        while text not in (line := self.lines.get(timeout=max(0, end - time.monotonic())) or ""):
            assert self.process.poll() is None or line, f"ended, and never printed {text!r}"

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


def prepared(sock):
    sock.settimeout(DEADLINE)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class StrangerTest(unittest.TestCase):
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.job = Job(*cls.arguments)
        cls.addClassCleanup(cls.job.close)

    def socket(self):
        sock = prepared(socket.create_connection(("127.0.0.1", self.job.port), timeout=DEADLINE))
        self.addCleanup(sock.close)
        return sock

    def dial(self, stranger, ready=True, **lies):
        stranger.connect(self.socket(), **lies)
        if ready:
            stranger.write(frame(READY))
        return stranger

    def join(self, **options):
        """A stranger that is linked and ready."""
        return self.dial(Stranger(next(node_ids), **{"topics": TOPICS, **options}))

    def refusal(self, stranger, **lies):
        """The code of the REJECT, behind which the connection must be closed."""
        with self.assertRaises(Refused) as refused:
            self.dial(stranger, **lies)
        self.assert_closed(stranger)
        return refused.exception.code

    def assert_closed(self, stranger):
        """Nothing but control frames comes, and then the end."""
        with self.assertRaises(ConnectionError):
            stranger.until(lambda: stranger.events)

    def ask(self, stranger, topic, *args, **options):
        stranger.emit(topic, *args, **options)
        return stranger.event()

    def assert_works(self, stranger):
        self.assertEqual(self.ask(stranger, "bare", 1).args, [2])

    def closed_after(self, data):
        """What the job says to these bytes before it closes."""
        sock, said = self.socket(), b""
        with contextlib.suppress(ConnectionError):
            sock.sendall(data)
            while part := sock.recv(4096):
                said += part
        return said


class Greeting(StrangerTest):
    def test_both_sides_say_who_they_are(self):
        stranger = self.join()
        self.assertTrue(stranger.proved)
        peer = stranger.peer
        self.assertEqual((peer["job"], peer["node"], peer["auth"], peer["resume"]), ("", 0, False, 0))
        self.assertEqual((peer["listen"], peer["labels"]), (f"tcp://127.0.0.1:{self.job.port}", []))
        stranger.until(lambda: stranger.peer_ready)
        self.assertLessEqual({"bare", "task.number", "task.tell"}, set(stranger.heard))

    def test_unknown_keys_are_ignored(self):
        self.assert_works(self.dial(Stranger(next(node_ids), topics=TOPICS), from_the_future=[1, {"a": 2}]))

    def test_another_version_is_refused_with_code_1(self):
        for version in (0, 1, 0xFFFF):
            said = self.closed_after(b"DIVISI" + struct.pack("<H", version))
            self.assertEqual(said[:8], PREAMBLE)
            self.assertEqual(said[8], REJECT)
            self.assertEqual(msgpack.unpackb(said[24:]),
                             {"code": 1, "reason": f"protocol version {version} meets version 2"})

    def test_another_job_is_refused_with_code_2(self):
        self.assertEqual(self.refusal(Stranger(next(node_ids), job="another")), 2)

    def test_a_secret_that_the_job_has_not_is_refused_with_code_3(self):
        self.assertEqual(self.refusal(Stranger(next(node_ids), secret=b"secret")), 3)

    def test_a_taken_node_id_is_refused_with_code_4(self):
        first = self.join()
        self.assertEqual(self.refusal(Stranger(first.me["node"])), 4)
        self.assertEqual(self.refusal(Stranger(0)), 4)
        self.assert_works(first)

    def test_a_greeting_without_sense_is_refused_with_code_5(self):
        self.assertEqual(self.refusal(Stranger(next(node_ids)), nonce=b"short"), 5)
        self.assertEqual(self.refusal(Stranger(next(node_ids)), incarnation=0), 5)
        self.assertEqual(self.refusal(Stranger(1 << 31)), 5)

    def test_garbage_closes(self):
        greeting = packed(HELLO, {**Stranger(next(node_ids)).me, "nonce": bytes(32)})
        for name, data in {
            "another protocol": b"GET / HTTP/1.1\r\n\r\n",
            "noise behind the preamble": PREAMBLE + b"\xff" * 64,
            "an event before the proof": PREAMBLE + greeting + frame(EVENT, b"event", number=1),
            "a greeting of more than 64 KiB": PREAMBLE + frame(HELLO, msgpack.packb({"x": bytes(65536)})),
            "a length of almost 4 GiB": PREAMBLE + struct.pack("<BBBBIQ", HELLO, 0, 0, 0, 0xFFFFFFFF, 0),
            "half a preamble and then silence": PREAMBLE[:4],
        }.items():
            with self.subTest(name):
                self.closed_after(data)
        self.assert_works(self.join())

    def test_a_successor_starts_with_nothing(self):
        first = self.join()
        self.assert_works(first)
        first.emit("task.count", 1, 10)
        first.sock.close()
        second = self.dial(Stranger(first.me["node"], topics=TOPICS))
        self.assertEqual(second.peer["resume"], 0)
        self.job.wait_until_printed(f"peer_back {first.me['node']}")
        self.assert_works(second)


class Secret(StrangerTest):
    @classmethod
    def setUpClass(cls):
        cls.arguments = ("--secret-file", secret_file("open sesame\n"), "--job-id", "treasure")
        super().setUpClass()

    def test_who_has_the_secret_may_talk(self):
        stranger = self.join(secret=b"open sesame", job="treasure")
        self.assertTrue(stranger.proved)
        self.assertEqual(self.ask(stranger, "task.greet", "Ali", kwargs={"a": 1}).args, ["Hi Ali"])
        self.job.wait_until_printed("greeted by Ali with 1 keywords")
        stranger.leave()

    def test_others_are_refused_with_code_3(self):
        wrong = Stranger(next(node_ids), secret=b"open barley", job="treasure")
        self.assertEqual(self.refusal(wrong), 3)
        self.assertFalse(hasattr(wrong, "proved"), "the job proves itself only to who has proved")
        none = Stranger(next(node_ids), job="treasure")
        self.assertEqual(self.refusal(none), 3)
        self.assertEqual(self.refusal(none, auth=True), 3)

    def test_a_stranger_hears_neither_the_job_id_nor_a_proof(self):
        for job, auth in (("guess", True), ("treasure", True), ("treasure", False)):
            me = {**Stranger(next(node_ids), job=job).me, "auth": auth, "nonce": bytes(32)}
            said = self.closed_after(PREAMBLE + packed(HELLO, me) + packed(PROOF, {"proof": bytes(32)}))
            self.assertNotIn(b"proof", said)
            if job == "guess":
                self.assertNotIn(b"treasure", said)

    def test_silent_strangers_do_not_lock_peers_out(self):
        silent = [self.socket() for _ in range(700)]
        stranger = self.join(secret=b"open sesame", job="treasure")
        self.assertEqual(self.ask(stranger, "task.greet", "Ali").args, ["Hi Ali"])
        for sock in silent:
            sock.close()

    def test_the_job_counts_as_well(self):
        self.assertEqual(self.refusal(Stranger(next(node_ids), secret=b"open sesame")), 2)


def pattern(size):
    return (bytes(range(251)) * (size // 251 + 1))[:size]


def beside(index):
    return msgpack.ExtType(1, struct.pack("<I", index))


class Events(StrangerTest):
    def test_small_events_with_keywords_both_ways(self):
        stranger = self.join()
        answer = self.ask(stranger, "task.greet", "Wörld", kwargs={"a": 1, "b": [None, -2.5, "x"]})
        self.assertEqual((answer.topic, answer.args), ("task.greeting", ["Hi Wörld"]))
        self.assertEqual(answer.kwargs, {"more": {"a": 1, "b": [None, -2.5, "x"]}, "ok": True})
        self.job.wait_until_printed("greeted by Wörld with 2 keywords")

    def test_received_buffers_are_in_the_body_beside_it_and_in_chunks(self):
        stranger = self.join()
        for size, beside_body, parts in (
            (0, [], 1), (8191, [], 1), (8192, [8192], 1), (200_000, [200_000], 1), (300_000, [300_000], 2),
            (PART * 4, [PART * 4], 5), (10_000_000, [10_000_000], 39),
        ):
            with self.subTest(size=size):
                event = self.ask(stranger, "task.make", size)
                self.assertEqual(event.args, [size, pattern(size)])
                self.assertEqual(event.kwargs, {"also": pattern(10_000)})
                self.assertEqual((list(event.sizes), event.parts), ([*beside_body, 10_000], parts))

    def test_sent_buffers_arrive(self):
        stranger = self.join()
        for size in (9_000, 200_000, 300_000, PART * 3, 5_000_000):
            with self.subTest(size=size):
                data, also = pattern(size), bytes(8192)
                event = self.ask(stranger, "task.take", 7, beside(1), buffers=[also, data],
                                 kwargs={"also": beside(0)})
                self.assertEqual(event.args, [7, size, sum(data), 1])
        self.assertEqual(self.ask(stranger, "task.take", 8, b"\x05" * 20).args, [8, 20, 100, 0])

    def test_more_than_255_buffers_both_ways(self):
        stranger = self.join()
        for count in (254, 255, 256, 400):
            with self.subTest(count=count):
                buffers = [pattern(8192 + n % 7) for n in range(count)]
                event = self.ask(stranger, "task.many", [beside(n) for n in range(count)], buffers=buffers)
                self.assertEqual(event.args, [buffers])
                self.assertEqual(list(event.sizes), [len(each) for each in buffers])

    def test_raw_bytes_both_ways(self):
        stranger = self.join()
        for size in (0, 3, 8192, 300_000):
            event = self.ask(stranger, "task.raw", pattern(size), raw=True)
            self.assertEqual((event.codec, event.args), (0, [pattern(size)]))

    def test_tensors_both_ways(self):
        stranger = self.join()
        small = struct.pack("<BBBB2Q6f", 11, 2, 0, 0, 2, 3, *range(6))
        self.assertEqual(self.ask(stranger, "task.tensor", msgpack.ExtType(2, small)).args,
                         [msgpack.ExtType(2, small)])
        large = struct.pack("<BBBBQI", 7, 1, 1, 0, 2_000, 0)
        event = self.ask(stranger, "task.tensor", msgpack.ExtType(2, large), buffers=[pattern(16_000)])
        self.assertEqual((event.args, event.sizes), ([msgpack.ExtType(2, large)], (16_000,)))

    def test_topics_by_number_trace_ids_and_padding(self):
        stranger = self.join()
        for topic in (1, 4096):
            stranger.spend(stranger.number(TOPIC, struct.pack("<I", topic) + b"bare"))
            self.assertEqual(self.ask(stranger, topic, 10).args, [11])
        self.assertEqual(self.ask(stranger, "bare", 20, trace=0xABCDEF).args, [21])
        stranger.spend(bytes(63))
        self.assertEqual(self.ask(stranger, 4096, 30, trace=1).args, [31])
        stranger.write(frame(PING, bytes(256)))
        self.assert_works(stranger)

    def test_until_ready_everything_comes_afterwards_what_was_subscribed_to(self):
        stranger = self.dial(Stranger(next(node_ids)), ready=False)
        self.assert_works(stranger)
        stranger.write(frame(READY))
        stranger.emit("bare", 1)
        stranger.write(packed(SUBSCRIBE, ["task.numbers", "task.counted"]))
        self.assertEqual(self.ask(stranger, "task.tell").topic, "task.numbers")
        stranger.write(packed(UNSUBSCRIBE, ["task.numbers"]))
        stranger.emit("task.tell")
        self.assertEqual(self.ask(stranger, "task.count", 1, 1).topic, "task.counted")
        stranger.write(packed(SUBSCRIBE, ["bare"], flags=1))
        stranger.emit("task.count", 1, 1)
        self.assert_works(stranger)

    def test_roles_labels_and_node_ids_direct_events(self):
        learner, other = self.join(), self.dial(Stranger(1_000_001, topics=TOPICS))
        learner.write(packed(ROLES, ["learner"]))
        learner.emit("task.directed")
        self.assertEqual([learner.event().args[0] for _ in range(2)], ["a learner", "a stranger"])
        self.assertEqual([other.event().args[0] for _ in range(2)], ["a stranger", "a million and one"])
        self.assert_works(learner)


class Order(StrangerTest):
    def test_no_event_passes_what_was_said_before_it(self):
        stranger = Stranger(next(node_ids), topics=TOPICS)
        sock = prepared(socket.socket())
        self.addCleanup(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        sock.connect(("127.0.0.1", self.job.port))
        stranger.connect(sock)
        stranger.write(frame(READY))
        stranger.emit("task.listen", 30_000)  # far more names than the socket takes
        while not self.job.prints("listens", within=1):
            stranger.write(frame(PING))
        while not stranger.events:
            stranger.write(frame(PING))  # reading takes long enough to be thought lost
            stranger.step()
        self.assertEqual(stranger.event().topic, "task.listening")
        self.assertIn("task.the last", stranger.heard)


class Resume(StrangerTest):
    def again(self, stranger):
        stranger.sock.close()
        return self.dial(stranger)

    def counted(self, stranger, count):
        numbers = (event.args[0] for event in iter(stranger.event, None) if event.topic == "task.counted")
        return list(itertools.islice(numbers, count))

    def test_what_was_not_received_comes_again_and_nothing_twice(self):
        stranger = self.join()
        stranger.acknowledging = False
        stranger.emit("task.count", 1, 300)
        numbers = []
        for _ in range(3):  # each time with another hundred behind it, none of them acknowledged
            numbers += self.counted(stranger, 100)
            self.again(stranger)
        self.assert_works(stranger)
        self.assertEqual(numbers, list(range(1, 301)))

    def test_what_was_emitted_while_away_is_there(self):
        away, other = self.join(), self.join()
        self.assert_works(away)
        away.sock.close()
        other.emit("task.count", 1, 50)
        self.assertEqual(self.counted(other, 50), list(range(1, 51)))
        self.assertEqual(self.counted(self.dial(away), 50), list(range(1, 51)))
        self.assert_works(away)

    def test_what_was_sent_arrives_once(self):
        stranger = self.join()
        before = self.ask(stranger, "task.tell").args[0]
        frames = [stranger.frames("task.number", i)[0] for i in range(90)]
        stranger.write(b"".join(frames[:30]))
        stranger.until(lambda: len(stranger.unacknowledged) == 60)
        stranger.write(b"".join(frames[30:60]) + frames[60][:10])  # who knows how many of these arrive?
        self.again(stranger)
        self.assertEqual(self.ask(stranger, "task.tell").args[0], before + list(range(90)))

    def test_a_message_in_chunks_goes_on_where_it_stopped(self):
        stranger = self.join()
        stranger.emit("task.make", 3_000_000)
        stranger.until(lambda: len(stranger.parts) == 4)
        self.again(stranger)
        self.assertEqual(len(stranger.parts), 4)
        self.assertEqual(stranger.event().args, [3_000_000, pattern(3_000_000)])

        frames = stranger.frames("task.take", 1, beside(0), buffers=[pattern(1_000_000)])
        stranger.write(b"".join(frames[:2]))
        stranger.until(lambda: len(stranger.unacknowledged) == len(frames) - 2)
        self.again(stranger)
        self.assertEqual(stranger.peer["resume"], stranger.sent - len(frames) + 2)
        self.assertEqual(stranger.event().args, [1, 1_000_000, sum(pattern(1_000_000)), 0])

    def test_topic_numbers_outlive_the_connection(self):
        stranger = self.join()
        stranger.spend(stranger.number(TOPIC, struct.pack("<I", 9) + b"bare"))
        self.assertEqual(self.ask(stranger, 9, 1).args, [2])
        self.again(stranger)
        self.assertEqual(self.ask(stranger, 9, 2).args, [3])


class Credit(StrangerTest):
    def until_quiet(self, stranger):
        """Until the peer had nothing to say for a second, twice."""
        pings = 0
        while pings < 2:
            pings = pings + 1 if stranger.step().kind == PING else 0

    def test_a_sender_stops_at_the_limit_until_it_is_raised(self):
        stranger = self.join(window=1000)
        stranger.acknowledging = False
        stranger.emit("task.count", 1, 200)
        self.until_quiet(stranger)
        received = len(stranger.events)
        self.assertTrue(1000 <= stranger.counted < 1100, stranger.counted)
        stranger.acknowledging = True
        stranger.acknowledge()
        self.assertEqual([stranger.event().args[0] for _ in range(200)], list(range(1, 201)))
        self.assertLess(received, 100)

    def test_what_a_policy_dropped_is_counted(self):
        stranger = self.join(window=1000)
        stranger.acknowledging = False
        stranger.emit("task.newest", 1000)
        self.until_quiet(stranger)
        stranger.acknowledging = True
        stranger.acknowledge()
        stranger.until(lambda: stranger.events and stranger.events[-1].args == [1000])
        self.assertEqual(len(stranger.events) + stranger.dropped, 1001)
        self.assertGreater(stranger.dropped, 900)


class Excess(StrangerTest):
    """What a peer makes the node keep is bounded."""

    def reason(self, stranger, parts):
        # The answer may come, and the connection end, before all is written.
        with contextlib.suppress(ConnectionError):
            for data in parts:
                stranger.write(data)
        while (got := stranger.read_frame()).kind != BYE:
            pass
        return msgpack.unpackb(got.content)[0]

    def test_who_ignores_its_credit_is_told_so(self):
        stranger = self.join()
        stranger.emit("task.hold")  # from here on nobody takes what arrives
        content = Stranger(0).frames("task.swallow", bytes(250_000), raw=True)[0][16:]
        flood = (frame(EVENT, content, number=n) for n in range(2, 2 + (1 << 30) // len(content)))
        try:
            self.assertRegex(self.reason(stranger, flood), "^sent beyond its credit of [0-9]+ bytes$")
        finally:
            self.join().emit("release")
        self.assert_works(self.join())

    def test_who_uses_its_credit_and_one_frame_is_not(self):
        stranger = self.join()
        stranger.emit("task.hold")
        while stranger.spent < stranger.peer["credit"]:
            data = stranger.frames("task.swallow", bytes(250_000), raw=True)[0]
            stranger.spent += len(data)
            stranger.write(data)
        self.join().emit("release")
        self.assert_works(stranger)

    def test_who_subscribes_to_too_much_is_told_so(self):
        lists = [[f"topic {n}" for n in range(at, at + 10_000)] for at in range(0, 100_000, 10_000)]
        stranger = self.join()
        self.assertEqual(self.reason(stranger, (packed(SUBSCRIBE, names) for names in lists)),
                         "subscribed to more than 65536 topics")
        self.assert_works(self.dial(stranger))  # with a shorter list
        self.assertEqual(self.reason(self.join(), [packed(SUBSCRIBE, ["x"] * 100_000)]),
                         "malformed list of names: too many names")
        stranger = self.join()
        self.assertEqual(self.reason(stranger, [packed(ROLES, [str(n) for n in range(1025)])]),
                         "announced more than 1024 roles")
        self.assert_works(self.dial(stranger))


class Violations(StrangerTest):
    def test_what_breaks_the_rules_closes_the_connection_and_only_that(self):
        event, question = (Stranger(0).frames(*each)[0][16:] for each in (("bare", 5), ("task.tell",)))

        def first(content, **header):
            return frame(EVENT, content, number=1, codec=1, **header)

        for name, due, data in (  # `due`: the next number if this were taken
            ("a frame of more than 256 KiB", 2, first(event + bytes(PART + 9 - len(event)))),
            ("a length of almost 4 GiB", 2, struct.pack("<BBBBIQ", EVENT, 0, 1, 0, 0xFFFFFFFF, 1)),
            ("a ping of 257 bytes", 1, frame(PING, bytes(257))),
            ("a subscription of more than 1 MiB", 1, packed(SUBSCRIBE, ["x" * 200] * 6000)),
            ("a long ready", 1, frame(READY, bytes(9))),
            ("a topic of 261 bytes", 2, frame(TOPIC, struct.pack("<I", 1) + b"t" * 261, number=1)),
            ("a message of more than 1 GiB", 2, first(struct.pack("<Q", 2 << 30) + bytes(PART), flags=MORE)),
            ("a small message in chunks", 2, first(struct.pack("<Q", len(event)) + event, flags=MORE)),
            ("an event inside another one", 3, first(struct.pack("<Q", PART + 1) + bytes(PART), flags=MORE)
             + frame(EVENT, event, number=2, codec=1)),
            ("a kind nobody knows", 1, packed(0x7F, ["task.tell"])),
            ("a second greeting", 1, packed(HELLO, {})),
            ("a chunk of nothing", 2, frame(CHUNK, b"chunk", number=1)),
            ("a number too high", 3, frame(EVENT, event, number=2, codec=1)),
            ("a number again", 2, first(event) * 2),
            ("a topic nobody named", 2, first(struct.pack("<II", 5, 1) + b"\x90")),
            ("a topic number out of range", 2, frame(TOPIC, struct.pack("<I", 4097) + b"bare", number=1)),
            ("a topic named twice", 3, b"".join(
                frame(TOPIC, struct.pack("<I", 1) + b"bare", number=n) for n in (1, 2))),
            ("a body longer than its frame", 2, first(struct.pack("<IIH", 0, 99, 4) + b"bare")),
            ("more buffers than there are", 2, first(event, buffers=255)),
            ("an acknowledgement of what was never sent", 1, frame(ACK, struct.pack("<Q", 1 << 40), number=999)),
            ("a list of names that is none", 1, frame(SUBSCRIBE, b"\xc1")),
            ("an unknown codec", 2, frame(EVENT, event, number=1, codec=3)),
            ("an unknown flag", 2, first(event, flags=0x20)),
            ("an event without a name", 2, first(struct.pack("<IIH", 0, 1, 0) + b"\x90")),
            ("a goodbye that is none", 1, frame(BYE, b"\xc1")),
            ("a goodbye with a reason", 1, packed(BYE, ["enough"])),
        ):
            with self.subTest(name):
                stranger = self.join(topics=["task.numbers"])
                # The question behind it would be answered if the connection were still good.
                with contextlib.suppress(ConnectionError):
                    stranger.write(data + frame(EVENT, question, number=due, codec=1))
                self.assert_closed(stranger)
        self.assert_works(self.join())


    def test_who_breaks_the_rules_is_told_how(self):
        stranger = self.join()
        stranger.write(frame(EVENT, Stranger(0).frames("bare", 5)[0][16:], number=1, codec=9))
        with self.assertRaises(ConnectionAbortedError) as bye:
            stranger.until(lambda: False)
        self.assertEqual(bye.exception.args, ("an event in the unknown codec 9",))


class Refusals(StrangerTest):
    def test_pickled_events_are_dropped_without_a_secret(self):
        stranger = self.join()
        # A listener that takes any bytes: only the codec is wrong.
        stranger.spend(stranger.number(EVENT, struct.pack("<IIH", 0, 1, 8) + b"task.raw" + b".", codec=2))
        stranger.spend(stranger.number(EVENT, struct.pack("<IIH", 0, 1, 8) + b"task.raw" + b"!", codec=0))
        self.assertEqual(stranger.event().args, [b"!"])
        self.assert_works(stranger)
        self.assertEqual(len(stranger.events), 0)

    def test_reports_about_peers_are_not_taken_from_peers(self):
        stranger = self.join()
        for report in ("peer_joined", "peer_lost", "peer_back", "peer_left"):
            stranger.emit(report, 4711)
        self.assert_works(stranger)
        self.assertNotIn("peer_lost", stranger.heard)
        stranger.leave()
        lines = []
        while f"peer_left {stranger.me['node']}" not in lines:
            lines.append(self.job.lines.get(timeout=DEADLINE))
        self.assertFalse([line for line in lines if "4711" in line])


class Ending(StrangerTest):
    def test_a_node_that_says_bye_has_left(self):
        stranger = self.join()
        self.job.wait_until_printed(f"peer_joined {stranger.me['node']}")
        self.assert_works(stranger)
        stranger.leave()
        self.job.wait_until_printed(f"peer_left {stranger.me['node']}")

    def test_the_job_says_bye_after_its_last_event(self):
        job = Job()
        self.addCleanup(job.close)
        stranger = Stranger(1, topics=TOPICS)
        stranger.connect(prepared(socket.create_connection(("127.0.0.1", job.port))))
        self.addCleanup(stranger.sock.close)
        stranger.write(frame(READY))
        stranger.emit("task.quit")
        with self.assertRaises(ConnectionAbortedError) as bye:
            stranger.until(lambda: False)
        self.assertEqual(bye.exception.args, ())
        self.assertEqual([event.topic for event in stranger.events], ["task.ending"])
        stranger.sock.close()
        self.assertEqual(job.process.wait(DEADLINE), 0)


class Acceptor(unittest.TestCase):
    """The stranger listens, and the job dials."""

    def test_an_impostor_is_refused_and_hears_nothing_after_the_proof(self):
        listener = socket.socket()
        self.addCleanup(listener.close)
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(DEADLINE)
        listener.listen()
        job = Job("--attach-to", f"127.0.0.1:{listener.getsockname()[1]}", "--node-ids", 3,
                  "--labels", "quiet", "--secret-file", secret_file("the secret of the job"))
        self.addCleanup(job.close)
        sock = prepared(listener.accept()[0])
        self.addCleanup(sock.close)
        impostor = Stranger(0, secret=b"a guess")
        with self.assertRaises(ConnectionError) as ended:
            impostor.connect(sock, dials=False)
        self.assertEqual(str(ended.exception), "the peer has closed")
        self.assertEqual(bytes(impostor.stream), b"")
        self.assertEqual(job.process.wait(DEADLINE), 3)

    def meet(self, listener, address, secret=b"", *arguments):
        self.addCleanup(listener.close)
        listener.settimeout(DEADLINE)
        listener.listen()
        job = Job("--attach-to", address, "--node-ids", 3, *arguments)
        self.addCleanup(job.close)
        stranger = Stranger(0, secret=secret, topics=TOPICS)
        self.accept(stranger, listener)
        self.assertTrue(stranger.proved)
        self.assertEqual(stranger.peer["node"], 3)
        job.wait_until_printed("answers")

        stranger.emit("task.greet", "dialler")
        self.assertEqual(stranger.event().args, ["Hi dialler"])
        stranger.emit("task.make", 1_000_000)
        stranger.until(lambda: stranger.parts)
        stranger.sock.close()  # the job dials again
        self.accept(stranger, listener)
        self.assertEqual(stranger.event().args, [1_000_000, pattern(1_000_000)])
        stranger.leave()
        job.wait_until_printed("peer_left 0")

    def accept(self, stranger, listener):
        sock = prepared(listener.accept()[0])
        self.addCleanup(sock.close)
        stranger.connect(sock, dials=False)
        stranger.write(frame(READY))

    def test_over_tcp(self):
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.meet(listener, f"127.0.0.1:{listener.getsockname()[1]}")

    def test_over_a_unix_socket_with_a_secret(self):
        listener = socket.socket(socket.AF_UNIX)
        path = directory / "listener.sock"
        listener.bind(str(path))
        self.meet(listener, f"ipc://{path}", b"shared", "--secret-file", secret_file("shared"))

    def test_over_an_abstract_unix_socket(self):
        listener = socket.socket(socket.AF_UNIX)
        name = f"divisi_stranger_{os.getpid()}"
        listener.bind(f"\0{name}")
        self.meet(listener, f"ipc://@{name}")


if __name__ == "__main__":
    unittest.main()
