"""Parallel: one ``main`` in several processes that hear each other's events."""

import multiprocessing.spawn
import numbers
import os
import pickle
import random
import signal
import string
import subprocess
import sys
import tempfile
import threading
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Union

from . import _native
from ._secret import chosen_secret
from ._target import chosen_policy, policy_number, target_arguments
from .errors import UsageError, WorkerError
from .event_loop import _check_callable

_resolving = False  # true while a worker imports the program that started it


class Parallel:
    """The router of this process: who it is in the job, its peers, events beside those of tasks.

    ``Parallel()`` is always the same object. It is inactive until a runner (or ``ditask``) has made
    the process a node::

        def main():
            with task.start():
                ...

        if __name__ == "__main__":
            Parallel.runner(n_parallel_workers=2)(main)
    """

    _instance: Optional["Parallel"] = None
    _instance_lock = threading.Lock()

    def __new__(cls) -> "Parallel":
        with cls._instance_lock:
            if cls._instance is None:
                cls._instance = super().__new__(cls)
        return cls._instance

    # --- running ---

    @classmethod
    def runner(
        cls,
        n_parallel_workers: int,
        mq_type: str = "nng",
        attach_to: Optional[List[str]] = None,
        protocol: str = "ipc",
        address: Optional[str] = None,
        ports: Union[None, int, List[int]] = None,
        topology: str = "mesh",
        labels: Optional[Set[str]] = None,
        node_ids: Union[None, int, List[int]] = None,
        auto_recover: bool = False,
        max_retries: float = float("inf"),
        redis_host: Optional[str] = None,
        redis_port: Union[None, int, str] = None,
        startup_interval: float = 0,
        **more: Any,
    ) -> Callable[..., None]:
        """A function that runs ``main(*args, **kwargs)`` in every worker and returns when all ended.

        :param n_parallel_workers: with 1, ``main`` runs in this process; otherwise in new ones
        :param mq_type: ``nng`` (an alias of the built-in transport) or ``divisi``
        :param attach_to: addresses that every worker dials besides the topology
        :param protocol: ``ipc`` (this host) or ``tcp``
        :param address: tcp: the host to listen on; default this machine's address
        :param ports: tcp: one counts up, from 50515 by default
        :param topology: ``mesh``, ``star`` or ``alone``
        :param labels: of all workers of this runner
        :param node_ids: one counts up, from 0 by default
        :param auto_recover: call ``main`` again, in place, when it raises
        :param max_retries: how often
        :param startup_interval: seconds between the starts of two workers; not needed

        Further keywords: ``job_id``, ``secret`` (bytes or str), ``allow_pickle``, ``join_timeout``,
        ``send_timeout``, ``queue_bytes``, ``memory_bytes``, ``max_message_bytes``, ``send_policy``,
        ``codec``, ``worker_lost`` (fail, ignore, restart), ``max_restarts``, ``hub_lost`` (ignore, finish), ``relay``,
        ``grace``, ``log_dir``, ``log_level``, ``trace``.
        """
        n_parallel_workers = _checked("n_parallel_workers", n_parallel_workers, int)
        unknown = set(more) - set(_MORE_OPTIONS)
        if unknown:
            raise TypeError(
                f"Parallel.runner has no parameter {', '.join(sorted(unknown))}; "
                f"beside the named ones it takes {', '.join(sorted(_MORE_OPTIONS))}"
            )
        options: Dict[str, Any] = {
            name: _checked(name, given, _MORE_OPTIONS[name])
            for name, given in more.items()
            if given is not None
        }
        options.update(
            n_parallel_workers=n_parallel_workers,
            protocol=_checked("protocol", protocol, str),
            topology=_checked("topology", topology, str),
            attach_to=_texts("attach_to", attach_to),
            labels=set(_texts("labels", labels)),
            ports=_integers("ports", ports),
            node_ids=_integers("node_ids", node_ids),
            auto_recover=_checked("auto_recover", auto_recover, bool),
            startup_interval=_checked("startup_interval", startup_interval, float),
        )
        if address is not None:
            options["address"] = _checked("address", address, str)
        if max_retries is not None and max_retries != float("inf"):
            options["max_retries"] = _checked("max_retries", max_retries, int)
        if "send_policy" in options:
            options["send_policy"] = policy_number(options["send_policy"])
        secret = chosen_secret(options.pop("secret", None))
        if secret:
            options["secret"] = secret

        def run(main_process: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
            if mq_type == "redis":
                raise KeyError("mq_type 'redis' is not part of this version; use 'nng'")
            if mq_type not in ("nng", "divisi"):
                raise KeyError(f"mq_type {mq_type!r} is not known; use 'nng'")
            _check_callable(main_process)
            if _resolving:
                raise RuntimeError(
                    "a worker tried to start workers while it was importing your program: call "
                    'Parallel.runner(...) under `if __name__ == "__main__":`'
                )
            entry = b"" if n_parallel_workers == 1 else _entry(main_process, args, kwargs)
            from .task import run_as_main  # which imports this module

            main = partial(run_as_main, partial(main_process, *args, **kwargs))
            try:
                _native.run(options, _worker_command(), entry, main)
            except WorkerError as error:
                if _was_terminated(error, n_parallel_workers):
                    raise SystemExit(error.exit_code) from error
                raise

        return run

    # --- who we are ---

    @property
    def is_active(self) -> bool:
        """Whether this process is a node of a job."""
        return _native.router_is_active()

    @property
    def node_id(self) -> Optional[int]:
        """Unique in the job; None while inactive."""
        return _native.router_node_id() if self.is_active else None

    @property
    def local_id(self) -> Optional[int]:
        """The index within the launcher; None while inactive."""
        return _native.router_local_id() if self.is_active else None

    @property
    def n_parallel_workers(self) -> Optional[int]:
        """Workers of this launcher; None while inactive."""
        return _native.router_n_parallel_workers() if self.is_active else None

    @property
    def labels(self) -> Set[str]:
        """Given by the launcher."""
        return _native.router_labels()

    @property
    def mq_type(self) -> Optional[str]:
        """``nng`` while active: the built-in transport."""
        return _native.router_mq_type() or None

    @property
    def address(self) -> str:
        """Where this node listens."""
        return _native.router_address()

    @property
    def interrupted(self) -> bool:
        """Whether a signal, or the launcher, has asked this process to end."""
        return _native.router_interrupted()

    @property
    def auto_recover(self) -> bool:
        """As given to the runner."""
        return _native.router_auto_recover()

    @property
    def max_retries(self) -> float:
        """As given to the runner."""
        limit = _native.router_max_retries()
        return float("inf") if limit < 0 else limit

    @property
    def retries(self) -> int:
        """How often ``main`` has failed and was called again."""
        return _native.router_retries()

    _retries = retries
    barrier_runtime = None
    """DI-engine keeps the state of its barrier here; ours is native."""

    def get_attch_to_len(self) -> int:
        """How many addresses this node dials."""
        return _native.router_attach_to_len()

    get_attach_to_len = get_attch_to_len

    # --- events ---

    def on(self, event: str, fn: Callable) -> None:
        """Calls ``fn`` for every event of that name that a peer's router emits.

        ``peer_joined``, ``peer_lost``, ``peer_back`` and ``peer_left`` come by themselves, with the
        node id.
        """
        _check_callable(fn)
        _native.router_on(event, fn, False)

    def once(self, event: str, fn: Callable) -> None:
        """As :meth:`on`, for the first one only."""
        _check_callable(fn)
        _native.router_on(event, fn, True)

    def off(self, event: str) -> None:
        """Removes all listeners of the events that match the glob."""
        _native.router_off(event)

    def emit(
        self,
        event: str,
        *args: Any,
        to: Any = None,
        one_of: bool = False,
        policy: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        """To every peer that listens; never to ourselves. Nothing while inactive.

        The parameters are those of :meth:`Task.emit`.
        """
        _native.router_emit(
            event, args, kwargs, *target_arguments(to, one_of), chosen_policy(policy)
        )

    # --- calls with an answer ---

    def serve(self, name: str, fn: Callable) -> None:
        """Others may :meth:`call` ``name``; what ``fn`` returns or raises goes back to them."""
        _check_callable(fn)

        def answer(caller: int, call: int, *args: Any) -> None:
            try:
                result, ok = fn(*args), True
            except Exception as error:
                result, ok = _text_of(error), False
            try:
                _native.router_answer(caller, call, ok, result)
            except Exception as error:  # an answer of a type that cannot travel
                _native.router_answer(caller, call, False, _text_of(error))

        _native.router_on(f"call.{name}", answer, False)

    def call(self, node_id: int, name: str, *args: Any, timeout: float = 30.0) -> Any:
        """Calls ``name`` on another node and gives its answer; raises Error with what it raised."""
        return _native.router_call(node_id, name, timeout, args)

    # --- peers ---

    def peers(self) -> List[Dict[str, Any]]:
        """One dict for each peer: node_id, labels, roles, address, connected, lost, ready."""
        return _native.router_peers()

    def wait_for_peers(self, count: int, timeout: float = 60.0) -> bool:
        """Waits until ``count`` peers are connected; False after the time-out, or when this process is
        asked to end."""
        return _native.router_wait_for_peers(count, timeout)

    def ready(self) -> None:
        """Says that our listeners are made: peers may stop sending what we do not listen to."""
        _native.router_ready()

    def flush(self, timeout: float = 30.0) -> bool:
        """Waits until every event so far was received by its peers; False after the time-out."""
        return _native.router_flush(timeout)

    def barrier(self, timeout: float = 60.0) -> None:
        """Waits until every node has called it as often; TimeoutError names those missing, and so does
        the Error when this process is asked to end."""
        _native.router_barrier(timeout)

    def stats(self) -> Dict[str, Any]:
        """Counters: ``peers``, ``topics``, ``unlistened``, ``held``."""
        return _native.router_stats()

    def listen(self) -> None:
        """There is no receive loop to run here: the transport has its own threads."""

    def stop(self) -> None:
        """Leaves the job: flushes, says goodbye, closes. A runner does it by itself."""
        _native.node_close()

    def __enter__(self) -> "Parallel":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    # --- addresses ---

    @classmethod
    def get_ip(cls) -> str:
        """The address other hosts would reach this one at."""
        import socket

        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect(("10.255.255.255", 1))  # sends nothing
                return probe.getsockname()[0]
            except OSError:
                return "127.0.0.1"

    @classmethod
    def get_node_addrs(
        cls,
        n_workers: int,
        protocol: str = "ipc",
        address: Optional[str] = None,
        ports: Union[None, int, List[int]] = None,
    ) -> List[str]:
        """The listen addresses of ``n_workers`` workers."""
        if protocol == "ipc":
            letters = random.SystemRandom().choices(string.ascii_lowercase + string.digits, k=4)
            folder = tempfile.gettempdir()
            return [f"ipc://{folder}/ditask_{''.join(letters)}_{i}.ipc" for i in range(n_workers)]
        if protocol == "tcp":
            padded = cls.padding_param(ports, n_workers, 50515)
            if len(padded) != n_workers:
                raise UsageError(
                    f"{len(padded)} ports for {n_workers} workers: give one for each, or the first"
                )
            return [f"tcp://{address or cls.get_ip()}:{port}" for port in padded]
        raise UsageError(f"unknown protocol {protocol!r}: use ipc or tcp")

    @classmethod
    def padding_param(
        cls, int_or_list: Union[None, int, List[int]], n_max: int, start_value: int
    ) -> List[int]:
        """One number counts up to ``n_max`` of them; a list stays as it is."""
        if int_or_list is None or int_or_list == []:
            int_or_list = start_value
        if isinstance(int_or_list, (list, tuple)) and len(int_or_list) == 1:
            int_or_list = int_or_list[0]
        if isinstance(int_or_list, int):
            return list(range(int_or_list, int_or_list + n_max))
        return list(int_or_list)


_MORE_OPTIONS = {
    "allow_pickle": bool,
    "codec": str,
    "grace": float,
    "hub_lost": str,
    "job_id": str,
    "join_timeout": float,
    "log_dir": str,
    "log_level": str,
    "max_message_bytes": int,
    "memory_bytes": int,
    "queue_bytes": int,
    "relay": bool,
    "secret": (bytes, str),
    "send_policy": str,
    "send_timeout": float,
    "trace": bool,
    "worker_lost": str,
    "max_restarts": int,
}

_KINDS = {bool: "True or False", int: "an int", float: "a number of seconds", str: "a str"}


_LARGEST = 2**31 - 1
_RANGES = {
    "n_parallel_workers": (1, _LARGEST),
    "max_retries": (0, _LARGEST),
    "max_restarts": (0, _LARGEST),
    "node_ids": (0, _LARGEST),
    "ports": (0, 65535),
    "max_message_bytes": (1, 2**63 - 1),
    "memory_bytes": (1, 2**63 - 1),
    "queue_bytes": (1, 2**63 - 1),
}


def _in_range(name: str, given: int) -> int:
    low, high = _RANGES[name]
    if given < low:
        raise UsageError(f"{name} must be at least {low}, not {given}")
    if given > high:
        raise UsageError(f"{name} must be at most {high}, not {given}")
    return given


def _text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _checked(name: str, given: Any, kind: Any) -> Any:
    # Here, because further down nobody knows the parameter's name.
    if kind is str and isinstance(given, os.PathLike):
        given = os.fspath(given)
    if kind is int and isinstance(given, numbers.Integral) and not isinstance(given, bool):
        return _in_range(name, int(given))
    if kind is float and isinstance(given, numbers.Real) and given >= 0:  # type: ignore[operator]
        return float(given)
    if kind not in (int, float) and isinstance(given, kind):
        return given
    raise UsageError(f"{name} is {_KINDS.get(kind, 'bytes or a str')}, not {given!r}")


def _texts(name: str, given: Optional[Iterable[Any]]) -> List[str]:
    if isinstance(given, (str, bytes)):
        raise UsageError(f"{name} is a list of str, not {given!r}")
    return [str(one) for one in given or ()]


def _integers(name: str, given: Union[None, int, Iterable[int]]) -> List[int]:
    if given is None:
        return []
    if isinstance(given, int):
        return [_in_range(name, given)]
    try:
        numbers_given = [int(one) for one in given]
    except (TypeError, ValueError):
        raise UsageError(f"{name} is an int or a list of them, not {given!r}") from None
    return [_in_range(name, one) for one in numbers_given]


def _worker_command() -> List[str]:
    # By -c, because -m and a script's path would put a folder in front of the search path.
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    code = f"import sys; sys.path.insert(0, {package!r}); from divisi._worker import main; main()"
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, "-c", code]


def _entry(main: Callable, args: tuple, kwargs: dict) -> bytes:
    # As multiprocessing spawns: search path, directory and main module first, then the function.
    preparation = multiprocessing.spawn.get_preparation_data("divisi-worker")
    preparation.pop("authkey", None)
    if not os.path.isfile(preparation.get("init_main_from_path", "")):
        preparation.pop("init_main_from_path", None)  # of a program that came by standard input
        if "init_main_from_name" not in preparation:
            _check_importable(main)
    try:
        return pickle.dumps((preparation, pickle.dumps((main, args, kwargs))))
    except Exception as error:
        raise UsageError(
            f"several workers need a main that other processes can import by name, and arguments "
            f"that can be pickled: {type(error).__name__}: {error}"
        ) from error


def _check_importable(main: Any) -> None:
    """For a program without a file (a notebook, an interactive session, ``python -c``): its functions
    have the name ``__main__`` in front, and in a worker that is another module."""
    while isinstance(main, partial):
        main = main.func
    where = getattr(main, "__self__", main)  # a method is its object's
    module = getattr(where, "__module__", None) or type(where).__module__
    if module == "__main__":
        name = getattr(main, "__qualname__", type(main).__name__)
        raise UsageError(
            f"main ({name}) is defined in a session without a file (a notebook, an interactive session "
            "or python -c), and workers import it by name: put it into a module and import it from "
            "there, or run one worker (n_parallel_workers=1)"
        )


def _was_terminated(error: WorkerError, n_parallel_workers: int) -> bool:
    # By a SIGTERM to this process, not to one of its workers: it was asked to end, so it does.
    ours = error.node_id == -1 or n_parallel_workers == 1
    return ours and error.exit_code == 128 + signal.SIGTERM
