"""Writes the golden frames of the link protocol: bytes put together from docs/wire.md by hand, not by
the library, so that the tests compare two readings of the same text. Run it after a version change."""
import pathlib
import struct


def frame(kind, content=b"", *, flags=0, codec=0, buffers=0, sequence=0):
    return struct.pack("<BBBBIQ", kind, flags, codec, buffers, len(content), sequence) + content


def message(topic_id, body, *, name=b"", trace=None, buffers=()):
    out = struct.pack("<II", topic_id, len(body))
    if topic_id == 0:
        out += struct.pack("<H", len(name)) + name
    if trace is not None:
        out += struct.pack("<Q", trace)
    if len(buffers) >= 255:
        out += struct.pack("<Q", len(buffers))
    for each in buffers:
        out += struct.pack("<Q", len(each))
    out += body
    for each in buffers:
        out += b"\0" * (-len(out) % 64) + each
    return out


def text(value):
    raw = value.encode()
    return bytes([0xA0 | len(raw)]) + raw


def names(*values):
    return bytes([0x90 | len(values)]) + b"".join(text(value) for value in values)


BODY = b"\x92\x07\xa2hi"  # the arguments (7, "hi")
KWARGS = b"\x92\x07\x81\xa4step\x03"  # (7, step=3)
NONCE = bytes(range(32))
HELLO = (b"\x85" + text("job") + text("train") + text("node") + b"\x03" + text("incarnation")
         + b"\xcf" + struct.pack(">Q", 0x0102030405060708) + text("nonce") + b"\xc4\x20" + NONCE
         + text("auth") + b"\xc3")

GOLDEN = {
    "preamble": b"DIVISI\x02\x00",
    "hello": frame(0x01, HELLO),
    "reject": frame(0x04, b"\x82" + text("code") + b"\x03" + text("reason") + text("wrong secret")),
    "topic": frame(0x12, struct.pack("<I", 5) + b"task.greeting", sequence=1),
    "event": frame(0x10, message(5, BODY), codec=1, sequence=2),
    "event_kwargs": frame(0x10, message(5, KWARGS), flags=0x02, codec=1, sequence=3),
    "event_named": frame(0x10, message(0, BODY, name=b"task.rare"), codec=1, sequence=4),
    "event_traced": frame(0x10, message(5, BODY, trace=0x1122334455667788), flags=0x04, codec=1,
                          sequence=5),
    "event_buffers": frame(0x10, message(5, BODY, buffers=(b"A" * 100, b"", b"C" * 3)), codec=1,
                           buffers=3, sequence=6),
    # 300 buffers: the header says 255, the number stands in the message.
    "event_many_buffers": frame(0x10, message(5, BODY, buffers=[bytes([n % 256]) * (n % 3) for n in range(300)]),
                                codec=1, buffers=255, sequence=9),
    "event_dropped": frame(0x10, flags=0x08, codec=1, sequence=7),
    "gap": frame(0x13, struct.pack("<Q", 12), sequence=8),
    "ack": frame(0x20, struct.pack("<Q", 1_000_000), sequence=41),
    "ping": frame(0x21),
    "subscribe": frame(0x23, names("task.a", "task.b"), flags=1),
    "unsubscribe": frame(0x24, names("task.a")),
    "ready": frame(0x25),
    "roles": frame(0x26, names("learner")),
    "bye": frame(0x27),
    "labels": frame(0x28, names("gpu", "left")),
}

if __name__ == "__main__":
    here = pathlib.Path(__file__).parent
    for name, content in GOLDEN.items():
        (here / f"{name}.bin").write_bytes(content)
