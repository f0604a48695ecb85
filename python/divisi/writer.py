"""DistributedWriter: curves of all nodes in the files of one."""

import os
import threading
import weakref
from typing import Any, List, Optional

from ._event_file import EventFile, histogram_event, scalar_event, text_event
from .errors import UsageError

_EVENT = "distributed_writer"
_METHODS = ("add_scalar", "add_scalars", "add_text", "add_histogram")


class DistributedWriter:
    """Writes scalars, texts and histograms as TensorBoard event files; needs no other library.

    In a job one node writes; the others' calls become events for it::

        writer = DistributedWriter("exp/log").plugin(task.router, is_writer=task.router.node_id == 0)
        writer.add_scalar("loss", 0.5, 100)

    The file is made at the first value. Every value is handed to the system at once. The event is
    ``distributed_writer`` of the router, with (method, tag, value, step). Threads: any.

    :param logdir: the folder; default ``runs``
    :param comment: appended to the folder's name
    :param filename_suffix: appended to the file's name
    :param write_to_disk: False: values are dropped
    """

    root: Optional["DistributedWriter"] = None
    """The first instance that :meth:`get_instance` made."""

    def __init__(
        self,
        logdir: Optional[str] = None,
        comment: str = "",
        filename_suffix: str = "",
        write_to_disk: bool = True,
        **_: Any,
    ) -> None:
        self.logdir = (os.fspath(logdir) if logdir is not None else "runs") + comment
        """The folder of the files."""
        self._suffix = filename_suffix
        self._write_to_disk = write_to_disk
        self._router: Any = None
        self._is_writer = True
        self._lock = threading.Lock()
        self._file: Optional[EventFile] = None  # guarded by the lock

    @classmethod
    def get_instance(cls, *args: Any, **kwargs: Any) -> Optional["DistributedWriter"]:
        """With arguments a new writer, the first of which becomes the root; without, the root (None
        while there is none)."""
        if not args and not kwargs:
            return cls.root
        writer = cls(*args, **kwargs)
        if cls.root is None:
            cls.root = writer
        return writer

    def plugin(self, router: Any, is_writer: bool = False) -> "DistributedWriter":
        """Makes it one of a job's. Nothing while the router is inactive.

        :param is_writer: this node writes the files; exactly one should
        """
        if not router.is_active:
            return self
        self._router = router
        self._is_writer = is_writer
        if is_writer:
            itself = weakref.ref(self)  # a router's listener cannot be taken back

            def on_event(method: str, *args: Any, **kwargs: Any) -> None:
                writer = itself()
                if writer is not None:
                    writer._on_event(method, *args, **kwargs)

            router.on(_EVENT, on_event)
        return self

    def _on_event(self, method: str, *args: Any, **kwargs: Any) -> None:
        if method not in _METHODS:
            raise UsageError(f"a peer asked the writer for {method!r}; it has {', '.join(_METHODS)}")
        getattr(self, method)(*args, **kwargs)

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: Optional[int] = None, walltime: Any = None
    ) -> None:
        """One number of a curve.

        :param scalar_value: a number, or an array or tensor of one
        :param walltime: seconds since 1970, default now; not sent to another node
        """
        value, step = float(scalar_value), int(global_step or 0)
        if not self._forwarded("add_scalar", tag, value, step):
            self._write(scalar_event(tag, value, step, walltime))

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Any, global_step: Optional[int] = None, walltime: Any = None
    ) -> None:
        """Several numbers: each as a scalar ``main_tag/key``."""
        for key, value in tag_scalar_dict.items():
            self.add_scalar(f"{main_tag}/{key}", value, global_step, walltime)

    def add_text(
        self, tag: str, text_string: str, global_step: Optional[int] = None, walltime: Any = None
    ) -> None:
        """A text; TensorBoard reads it as Markdown."""
        text, step = str(text_string), int(global_step or 0)
        if not self._forwarded("add_text", tag, text, step):
            self._write(text_event(tag, text, step, walltime))

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: Optional[int] = None,
        bins: Any = 64,
        walltime: Any = None,
        **_: Any,
    ) -> None:
        """The distribution of the values.

        :param values: numbers, or an array or tensor of them; nothing is written for none
        :param bins: their number; other values mean 64
        """
        numbers, step = _numbers(values), int(global_step or 0)
        if numbers and not self._forwarded("add_histogram", tag, numbers, step):
            count = bins if isinstance(bins, int) else 64
            self._write(histogram_event(tag, numbers, count, step, walltime))

    def flush(self) -> None:
        """To the disk itself."""
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def close(self) -> None:
        """Closes the file; a later value opens it again."""
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _forwarded(self, method: str, *args: Any) -> bool:
        if self._is_writer:
            return False
        self._router.emit(_EVENT, method, *args)
        return True

    def _write(self, event: bytes) -> None:
        if not self._write_to_disk:
            return
        with self._lock:
            if self._file is None:
                self._file = EventFile(self.logdir, self._suffix)
            self._file.write(event)

    def __enter__(self) -> "DistributedWriter":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _numbers(values: Any) -> List[float]:
    for name in ("detach", "cpu", "flatten", "ravel"):  # a tensor, an array
        method = getattr(values, name, None)
        if callable(method):
            values = method()
    if hasattr(values, "tolist"):
        values = values.tolist()
    return [float(value) for value in (values if isinstance(values, (list, tuple)) else [values])]
