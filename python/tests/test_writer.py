"""DistributedWriter: TensorBoard event files, read back by a reader of the format."""

import struct
from pathlib import Path

import pytest

from divisi import DistributedWriter, Error
from divisi._event_file import masked_crc32c


def records(path):
    """The messages of a file; every checksum is right."""
    data, at = Path(path).read_bytes(), 0
    while at < len(data):
        length, check = struct.unpack_from("<QI", data, at)
        assert check == masked_crc32c(data[at : at + 8])
        message = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked_crc32c(message)
        yield message
        at += 16 + length


def fields(message):
    """{number: [values]} of a protobuf message; groups of bytes are not opened."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = varint()
        elif key & 7 == 1:
            (value,), at = struct.unpack_from("<d", message, at), at + 8
        elif key & 7 == 5:
            (value,), at = struct.unpack_from("<f", message, at), at + 4
        else:
            size = varint()
            value, at = message[at : at + size], at + size
        found.setdefault(key >> 3, []).append(value)
    return found


def summaries(path):
    """(step, the fields of the value) of each event after the first, which names the version."""
    events = [fields(message) for message in records(path)]
    assert events[0][3] == [b"brain.Event:2"]
    return [(event[2][0], fields(fields(event[5][0])[1][0])) for event in events[1:]]


def scalars(path):
    return [(value[1][0].decode(), value[2][0], step) for step, value in summaries(path)]


def only_file(folder):
    (path,) = Path(folder).iterdir()
    assert path.name.startswith("events.out.tfevents.")
    return path


def test_the_checksum_is_the_published_one():
    # CRC-32C of 32 zero bytes is 8a9136aa (RFC 3720, B.4); masked as the format says.
    crc = 0x8A9136AA
    assert masked_crc32c(bytes(32)) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_scalars_are_in_the_file_at_once(tmp_path):
    writer = DistributedWriter(tmp_path / "log")
    assert not (tmp_path / "log").exists()  # lazily
    writer.add_scalar("loss", 0.5, 10)
    writer.add_scalars("both", {"a": 1, "b": -2.25}, 11)
    writer.add_scalar("without a step", 3)
    expected = [("loss", 0.5, 10), ("both/a", 1.0, 11), ("both/b", -2.25, 11), ("without a step", 3.0, 0)]
    assert scalars(only_file(tmp_path / "log")) == expected
    writer.close()
    writer.add_scalar("again", 1, 2**40)
    assert scalars(only_file(tmp_path / "log")) == [*expected, ("again", 1.0, 2**40)]


def test_texts_and_histograms(tmp_path):
    with DistributedWriter(tmp_path) as writer:
        writer.add_text("note", "größer", 1)
        writer.add_histogram("weights", [0.0, 1.0, 1.0, 4.0], 2, bins=4)
        writer.add_histogram("nothing", [], 3)
        writer.flush()
    (text_step, text), (step, histogram) = summaries(only_file(tmp_path))
    assert (text_step, text[1]) == (1, [b"note/text_summary"])
    assert fields(text[8][0])[8] == ["größer".encode()]
    assert fields(fields(text[9][0])[1][0])[1] == [b"text"]
    content = fields(histogram[5][0])
    assert (step, [content[i][0] for i in range(1, 6)]) == (2, [0.0, 4.0, 4.0, 6.0, 18.0])
    assert struct.unpack("<4d", content[6][0]) == (1.0, 2.0, 3.0, 4.0)
    assert struct.unpack("<4d", content[7][0]) == (1.0, 2.0, 0.0, 1.0)


def test_get_instance_makes_a_root_and_gives_it(tmp_path, monkeypatch):
    monkeypatch.setattr(DistributedWriter, "root", None)
    assert DistributedWriter.get_instance() is None
    first = DistributedWriter.get_instance(tmp_path)
    assert DistributedWriter.get_instance(tmp_path / "other") is not first
    assert DistributedWriter.get_instance() is first


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Error, match="could not write .*file/log/events.*: Not a directory"):
        DistributedWriter(tmp_path / "file" / "log").add_scalar("a", 1, 1)


def test_A072_one_file_holds_the_scalars_of_both_nodes(run_program, tmp_path):
    program = f"""
def main():
    with task.start():
        left = threading.Event()
        if me() == 0:
            task.router.on("peer_left", lambda _: left.set())
            if not task.router.peers():  # it has left already
                left.set()
        writer = DistributedWriter({str(tmp_path / 'log')!r}).plugin(task.router, is_writer=me() == 0)
        if me() == 1:
            writer.add_scalar("node1", 1.5, 7)
            writer.add_scalars("main", {{"sub": 2}}, global_step=8)
            return  # at once: nobody waits for what the writer has seen
        writer.add_scalar("node0", 0.5, 7)
        assert left.wait(60)
        writer.close()

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2)(main)
"""
    run_program(program).ok()
    written = scalars(only_file(tmp_path / "log"))
    assert sorted(written) == [("main/sub", 2.0, 8), ("node0", 0.5, 7), ("node1", 1.5, 7)]


def test_a_peer_cannot_call_other_methods(run_program, tmp_path):
    program = f"""
def main():
    with task.start():
        if me() == 0:
            writer = DistributedWriter({str(tmp_path / 'log')!r}).plugin(task.router, is_writer=True)
            for method in ("close", "_write"):
                try:
                    writer._on_event(method)
                except UsageError as error:
                    tell(str(error))

if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=1)(main)
"""
    has = "it has add_scalar, add_scalars, add_text, add_histogram"
    assert run_program(program).ok().results == [
        [f"a peer asked the writer for 'close'; {has}"], [f"a peer asked the writer for '_write'; {has}"]
    ]
