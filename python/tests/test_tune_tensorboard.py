"""TensorBoard's files as tables: divisi.tune.tensorboard."""

import struct
import sys
import types

import pytest

from divisi._event_file import EventFile, _bytes, _event, _integer, framed, scalar_event, text_event
from divisi.errors import Error
from divisi.tune.tensorboard import (
    ScalarTable, tb_create_range_plots, tb_extract_log, tb_extract_recursive_logs, tb_has_log,
)  # fmt: skip


@pytest.fixture(autouse=True)
def without_pandas(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)


def write_log(folder, scalars, suffix=""):
    file = EventFile(str(folder), suffix)
    for tag, step, value in scalars:
        file.write(scalar_event(tag, value, step))
    file.close()
    return file.path


def test_a_table_has_a_row_for_each_step(tmp_path):
    write_log(tmp_path, [("loss", 20, 0.5), ("loss", 10, 2.0), ("acc", 20, 0.25), ("loss", 20, 1.5)])
    table = tb_extract_log(tmp_path)
    assert table == {"step": [10, 20], "acc": [None, 0.25], "loss": [2.0, 1.5]}
    assert table.rows() == [
        {"step": 10, "acc": None, "loss": 2.0}, {"step": 20, "acc": 0.25, "loss": 1.5},
    ]  # fmt: skip


def test_files_of_a_folder_are_read_in_their_order(tmp_path):
    write_log(tmp_path, [("loss", 1, 1.0), ("loss", 2, 1.0)], ".0")
    write_log(tmp_path, [("loss", 2, 7.0)], ".1")
    assert tb_extract_log(tmp_path)["loss"] == [1.0, 7.0]


def test_steps_are_not_thinned(tmp_path):
    count = 20000  # TensorBoard's own reader keeps 10,000 unless it is told otherwise
    path = write_log(tmp_path, [])
    with open(path, "ab") as file:
        file.write(b"".join(framed(scalar_event("loss", i % 7, i, 0.0)) for i in range(count)))
    table = tb_extract_log(tmp_path)
    assert table["step"] == list(range(count)) and table["loss"][-1] == (count - 1) % 7


def test_TensorFlow_2s_scalars_are_tensors(tmp_path):
    file = EventFile(str(tmp_path))
    metadata = _bytes(9, _bytes(1, _bytes(1, b"scalars")))
    for step, content in ((1, struct.pack("<f", 2.5)), (2, struct.pack("<f", 3.5))):
        tensor = _integer(1, 1) + _bytes(2, b"") + _bytes(4, content)
        value = _bytes(1, b"acc") + _bytes(8, tensor) + (metadata if step == 1 else b"")
        file.write(_event(_bytes(5, _bytes(1, value)), step, None))
    file.write(text_event("note", "hello", 1))
    file.close()
    assert tb_extract_log(tmp_path) == {"step": [1, 2], "acc": [2.5, 3.5]}


def test_TensorBoards_own_reader_finds_the_same(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    path = write_log(tmp_path, [("loss", i, i / 3) for i in range(50)])
    events = accumulator.EventAccumulator(str(tmp_path), {"tensors": 0, "scalars": 0}).Reload()
    try:
        theirs = [(one.step, one.value) for one in events.Scalars("loss")]
    except KeyError:  # it takes all numbers for tensors
        theirs = [(one.step, one.tensor_proto.float_val[0]) for one in events.Tensors("loss")]
    ours = tb_extract_log(tmp_path)
    assert list(zip(ours["step"], ours["loss"])) == theirs, path


def test_folders_below_are_found(tmp_path):
    write_log(tmp_path / "a" / "run1", [("loss", 1, 1.0)])
    write_log(tmp_path / "b", [("loss", 1, 2.0)])
    write_log(tmp_path / "empty", [])
    assert not tb_has_log(tmp_path) and tb_has_log(tmp_path / "b") and not tb_has_log(tmp_path / "empty")
    assert set(tb_extract_recursive_logs(tmp_path)) == {"a/run1", "b"}
    write_log(tmp_path, [("loss", 1, 2.0)])
    assert set(tb_extract_recursive_logs(tmp_path)) == {".", "a/run1", "b"}


def test_a_frame_where_pandas_is_installed(tmp_path, monkeypatch):
    fake = types.ModuleType("pandas")
    fake.DataFrame = lambda columns: ("frame", dict(columns))
    monkeypatch.setitem(sys.modules, "pandas", fake)
    write_log(tmp_path, [("loss", 1, 1.0)])
    assert tb_extract_log(tmp_path) == ("frame", {"step": [1], "loss": [1.0]})


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no folder .*nowhere"):
        tb_extract_log(tmp_path / "nowhere")
    assert not tb_has_log(tmp_path / "nowhere")
    path = write_log(tmp_path, [("loss", 1, 1.0)])
    with open(path, "ab") as file:
        file.write(b"this is not a record of an event file")
    with pytest.raises(Error, match="no record of an event file at byte"):
        tb_extract_log(tmp_path)


def test_a_torn_record_at_the_end_is_not_an_error(tmp_path):
    path = write_log(tmp_path, [("loss", 1, 1.0)])
    with open(path, "ab") as file:
        file.write(framed(scalar_event("loss", 2.0, 2))[:-3])
    assert tb_extract_log(tmp_path) == {"step": [1], "loss": [1.0]}


class Axes:
    """Notes what is drawn."""

    def __init__(self):
        self.lines, self.bands, self.texts = {}, [], []
        self.xaxis = self

    def plot(self, xs, ys, label):
        self.lines[label] = list(zip(xs, ys))

    def fill_between(self, xs, low, high, alpha):
        self.bands.append(list(zip(xs, low, high)))

    def set_major_formatter(self, form):
        self.texts.append(form(12000.0, 0))

    def set_title(self, text):
        self.texts.append(text)

    def set_xlabel(self, text):
        pass

    def set_ylabel(self, text):
        pass

    def legend(self):
        pass


def test_plots_show_mean_and_band_of_groups(tmp_path):
    write_log(tmp_path / "dqn" / "seed0", [("r", 0, 0.0), ("r", 10, 10.0)])
    write_log(tmp_path / "dqn" / "seed1", [("r", 0, 2.0), ("r", 5, 7.0), ("r", 10, 12.0)])
    write_log(tmp_path / "sac", [("r", 0, 1.0), ("r", 10, 1.0)])
    axes = Axes()
    tb_create_range_plots(tmp_path, "step", "r", label_map={"dqn": "DQN"}, ax=axes)
    assert axes.lines == {
        "DQN": [(0, 1), (5, 6), (10, 11)], "sac": [(0, 1), (10, 1)],
    }  # fmt: skip
    assert axes.bands[0] == [(0, 0, 2), (5, 5, 7), (10, 10, 12)]
    assert axes.texts == ["12.00k", "'step' - 'r' plot"]
    axes = Axes()
    tb_create_range_plots(tmp_path, "step", "r", n_samples=2, upper_bound=9, ax=axes)
    assert axes.lines["dqn"] == [(0, 1), (5, 6)]
    with pytest.raises(ValueError, match="no run under .* has both 'step' and 'reward'"):
        tb_create_range_plots(tmp_path, "step", "reward", ax=axes)


def test_plots_without_matplotlib_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    write_log(tmp_path, [("r", 0, 0.0)])
    with pytest.raises(ImportError, match="pip install matplotlib"):
        tb_create_range_plots(tmp_path, "step", "r")


def test_a_tag_called_step_does_not_hide_the_steps(tmp_path):
    write_log(tmp_path, [("step", 3, 9.0)])
    assert tb_extract_log(tmp_path) == ScalarTable({"step": [3], "step (tag)": [9.0]})
