"""A node written from docs/wire.md alone joins a real job: is the page right and complete?

DIVISI_BUILD names the build to test (default: build/release of this checkout).
"""

import contextlib
import hashlib
import hmac
import os
import pathlib
import queue
import random
import shutil
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
ACK, PING, SUBSCRIBE, UNSUBSCRIBE, READY, ROLES, BYE = 0x20, 0x21, 0x23, 0x24, 0x25, 0x26, 0x27
MORE, KWARGS, TRACE, DROPPED = 0x01, 0x02, 0x04, 0x08
PREAMBLE = b"DIVISI\x01\x00"
PART = 256 * 1024
DEADLINE = 60  # seconds; only a hang ever waits for it

Frame = namedtuple("Frame", "kind flags codec buffers number content")
Event = namedtuple("Event", "topic args kwargs codec sizes parts number", defaults=(0, 0, 0, 0))


class Refused(Exception):
    def __init__(self, code, reason):
        super().__init__(code, reason)
        self.code, self.reason = code, reason


def frame(kind, content=b"", flags=0, codec=0, buffers=0, number=0):
    return struct.pack("<BBBBIQ", kind, flags, codec, buffers, len(content), number) + content


class Stranger:
    """One life of a node: what it has sent and received outlives its connections."""

    def __init__(self, node, secret=b"", job="", window=4 << 20, topics=()):
        self.me = {"job": job, "node": node, "auth": bool(secret),
                   "incarnation": int.from_bytes(os.urandom(8), "little") or 1}
        self.secret, self.window, self.topics = secret, window, topics
        self.last, self.names, self.events, self.parts = 0, {}, [], []  # received
        self.sent, self.unacknowledged = 0, {}  # number -> frame
        self.heard, self.dropped, self.ready, self.acknowledging = set(), 0, False, True

    def connect(self, sock, dials=True, **lies):
        self.sock, self.stream, self.counted, self.spent = sock, bytearray(), 0, 0
        me = {**self.me, "nonce": os.urandom(32), **lies}
        rest = {"resume": self.last, "credit": self.window, "listen": "", "labels": ["stranger"]}
        if dials:
            self.write(PREAMBLE + frame(HELLO, msgpack.packb(me)))
        if self.exactly(8) != PREAMBLE:
            raise ConnectionError("not this version of the protocol")
        other = self.greeting(HELLO)
        nonces = me["nonce"] + other["nonce"] if dials else other["nonce"] + me["nonce"]

        def proof(side, prover, verifier):
            ids = struct.pack("<4Q", *(x[k] for x in (prover, verifier) for k in ("node", "incarnation")))
            return hmac.digest(self.secret, side + nonces + ids + me["job"].encode(), hashlib.sha256)

        sides = (b"divisi dialler", b"divisi acceptor") if dials else (b"divisi acceptor", b"divisi dialler")
        mine, theirs = proof(sides[0], me, other), proof(sides[1], other, me)
        if not dials:
            self.write(PREAMBLE + frame(HELLO, msgpack.packb(me)) + frame(PROOF, msgpack.packb({"proof": mine})))
        told = self.greeting(PROOF)
        self.proved = hmac.compare_digest(told["proof"], theirs)
        self.write(frame(PROOF, msgpack.packb({"proof": mine, **rest})) if dials
                   else frame(WELCOME, msgpack.packb(rest)))
        self.peer = {**other, **(self.greeting(WELCOME) if dials else told)}
        self.credit = self.peer["credit"]
        self.forget(self.peer["resume"])
        self.write(frame(SUBSCRIBE, msgpack.packb(list(self.topics)), flags=1))
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
            self.heard = set(msgpack.unpackb(got.content)) | (set() if got.flags & 1 else self.heard)
        elif got.kind == UNSUBSCRIBE:
            self.heard -= set(msgpack.unpackb(got.content))
        elif got.kind == READY:
            self.ready = True
        elif got.kind == PING:
            self.write(frame(PING))  # the peer says so about once a second: often enough for us as well
        elif got.kind == BYE:
            raise ConnectionAbortedError(*msgpack.unpackb(got.content or b"\x90"))
        elif got.kind != ROLES:
            raise AssertionError(f"not due: {got}")
        return got

    def sequenced(self, got):
        if got.number != self.last + 1:
            raise AssertionError(f"number {got.number} behind {self.last}")
        self.last = got.number
        if got.kind == TOPIC:
            self.names[struct.unpack_from("<I", got.content)[0]] = got.content[4:].decode()
        elif got.kind in (EVENT, CHUNK) and not got.flags & DROPPED:
            self.parts = [*self.parts, got]
            if not got.flags & MORE:
                self.parts = self.events.append(self.decode(*self.parts)) or []
        else:
            self.dropped += 1 if got.kind == EVENT else struct.unpack("<Q", got.content)[0]

    def decode(self, head, *chunks):
        skip = 8 if head.flags & MORE else 0
        message, at = head.content[skip:] + b"".join(chunk.content for chunk in chunks), 8
        assert not skip or struct.unpack_from("<Q", head.content)[0] == len(message) > PART
        assert all(len(part.content) == PART for part in chunks[:-1]) and len(message) >= PART * len(chunks)
        topic, length = struct.unpack_from("<II", message)
        name = self.names[topic] if topic else None
        if not topic:
            at = 10 + struct.unpack_from("<H", message, 8)[0]
            name = message[10:at].decode()
        at += 8 if head.flags & TRACE else 0
        sizes = struct.unpack_from(f"<{head.buffers}Q", message, at)
        at += 8 * head.buffers
        body, at, buffers = message[at:at + length], at + length, []
        for size in sizes:
            at += -at % 64
            buffers.append(message[at:at + size])
            at += size
        assert at == len(message), "bytes behind the message"
        hook = lambda code, data: buffers[struct.unpack("<I", data)[0]] if code == 1 else (code, data)
        args = msgpack.unpackb(body, ext_hook=hook) if head.codec else [body]
        kwargs = args.pop() if head.flags & KWARGS else {}
        return Event(name, args, kwargs, head.codec, sizes, 1 + len(chunks), head.number)

    def acknowledge(self):
        self.write(frame(ACK, struct.pack("<Q", self.counted + self.window), number=self.last))

    def forget(self, number):
        self.unacknowledged = {n: data for n, data in self.unacknowledged.items() if n > number}

    def until(self, condition):
        end = time.monotonic() + DEADLINE
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError("waited too long")
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
        """The frames of one event. They count as sent: if a connection breaks, the next one has them."""
        body = args[0] if raw else msgpack.packb([*args, kwargs] if kwargs else args)
        named = isinstance(topic, str)
        message = struct.pack("<II", 0 if named else topic, len(body))
        message += struct.pack("<H", len(topic.encode())) + topic.encode() if named else b""
        message += b"" if trace is None else struct.pack("<Q", trace)
        message += struct.pack(f"<{len(buffers)}Q", *map(len, buffers)) + body
        for buffer in buffers:
            message += bytes(-len(message) % 64) + buffer
        header = {"codec": 0 if raw else 1, "buffers": len(buffers),
                  "flags": (KWARGS if kwargs else 0) | (0 if trace is None else TRACE)}
        if len(message) <= PART:
            return [self.number(EVENT, message, **header)]
        header["flags"] |= MORE
        parts = [message[at:at + PART] for at in range(0, len(message), PART)]
        return [self.number(EVENT, struct.pack("<Q", len(message)) + parts[0], **header)] + [
            self.number(CHUNK, part, flags=MORE if part is not parts[-1] else 0) for part in parts[1:]]

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
