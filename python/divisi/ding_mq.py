"""Lossless, ordered events for an unmodified DI-engine, chosen by one flag.

    Parallel.runner(n_parallel_workers=2, mq_type="divisi")(main)
    ditask --mq-type divisi --package my_module --main my_module.main     # DI-engine's ditask

Importing this module adds the queue type `divisi` to DI-engine in this process. Where divisi is
installed nobody has to: its start-up hook does so as soon as DI-engine's router is loaded. Worker
processes import it because the name of the queue that they are handed is an object of this module.

DI-engine looks the type up in three places. Its registry is open; the table of the runner and the
parsers of platforms know `nng` and `redis` only, so those two are shown `nng`, whose addresses are
ours too, and the workers get `divisi`.
"""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
import secrets
import sys
from typing import Any, Callable, Dict, List

from ding.framework.message_queue.mq import MQ
from ding.framework.parallel import Parallel
from ding.utils.registry_factory import MQ_REGISTRY

from ._ding_order import keep_order
from ._node_queue import NodeQueue
from ._secret import chosen_secret

NAME = "divisi"
"""The type: `mq_type="divisi"`, `--mq-type divisi`."""

# How long a worker waits for those it is linked with. They start at the same time, but load a
# learning library first.
_JOIN_S = float(os.environ.get("DIVISI_JOIN_TIMEOUT", "60"))


_NO_SECRET = (
    "mq_type='divisi' over tcp without a secret: whoever can connect can send a pickle, which runs code "
    "here. To keep strangers out: (umask 077; openssl rand -hex 32 > secret.txt), copy the file to "
    "every host and set DIVISI_SECRET_FILE=secret.txt there, or give the runner secret=..."
)

# From a platform's parser: the addresses that each worker of the other launchers dials.
_dialled_elsewhere: List[List[str]] = []


class MqType(str):
    """A queue type that a process cannot unpickle without importing this module."""


class DivisiMQ(NodeQueue, MQ):
    """DI-engine's message queue over the native transport. Made by its router in each worker."""

    def __init__(
        self,
        listen_to: str = "",
        attach_to: Any = None,
        peers: int = 0,
        secret: bytes = b"",
        **_ignored: Any,
    ) -> None:
        """Opens the node and waits for the `peers` that it dials or that dial it."""
        router = Parallel()
        router._mq = None  # its stop() asks, and would hide why we could not be made
        # The router does this next, and it loads all middleware: seconds in which peers, once
        # linked, would already speak to a worker that cannot listen.
        router.get_barrier_runtime()
        super().__init__(
            listen_to, attach_to, lambda topic: router._event_loop.listened(topic), _JOIN_S, secret
        )
        keep_order(router)
        if not self.join(peers, _JOIN_S):
            self.stop()
            raise TimeoutError(f"{listen_to}: fewer than {peers} other workers after {_JOIN_S:g} s")


def extend() -> None:
    """Adds the type to as much of DI-engine as is loaded. Does nothing the second time."""
    if NAME not in MQ_REGISTRY:
        MQ_REGISTRY.register(NAME, DivisiMQ)
        Parallel.runner = classmethod(_with_divisi(Parallel.runner.__func__))
    parsers = sys.modules.get("ding.entry.cli_parsers")
    for platform, parser in getattr(parsers, "PLATFORM_PARSERS", {}).items():
        if not hasattr(parser, NAME):
            parsers.PLATFORM_PARSERS[platform] = _as_for_nng(parser)


def _with_divisi(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def runner(cls: type, *args: Any, **kwargs: Any) -> Callable[..., None]:
        ours = {name: given for name, given in kwargs.items() if name != "secret"}
        call = signature.bind(cls, *args, **ours)
        if call.arguments.get("mq_type") != NAME:
            return original(cls, *args, **kwargs)
        call.arguments["mq_type"] = "nng"
        call.arguments["cls"] = _Planner(cls, chosen_secret(kwargs.get("secret")))
        return original(*call.args, **call.kwargs)

    return runner


class _Planner:
    """Stands for `Parallel` while it plans: its plan for nng, with our type in it."""

    def __init__(self, parallel: type, secret: bytes) -> None:
        self._parallel = parallel
        self._secret = secret

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parallel, name)

    def _nng_args_parser(self, **options: Any) -> List[Dict[str, Any]]:
        workers = self._parallel._nng_args_parser(**options)
        secret = self._secret or _own_secret(workers)
        if not secret:
            logging.getLogger("divisi").warning(_NO_SECRET)
        dialled = [list(worker["attach_to"]) for worker in workers] + _dialled_elsewhere
        for worker in workers:
            dialling = sum(worker["listen_to"] in others for others in dialled)
            worker.update(
                mq_type=MqType(NAME),
                peers=len(set(worker["attach_to"])) + dialling,
                secret=secret,
            )
            # DI-engine's default gives peers time to bind, one second a worker. Nobody needs it
            # here; what a user chose is kept.
            if worker["startup_interval"] == 1:
                worker["startup_interval"] = 0
        return workers


def _own_secret(workers: List[Dict[str, Any]]) -> bytes:
    """One for workers that speak to each other only, through files of this host."""
    ours = {worker["listen_to"] for worker in workers}
    private = all(
        worker["listen_to"].startswith("ipc://") and ours.issuperset(worker["attach_to"])
        for worker in workers
    )
    return secrets.token_bytes(32) if private else b""


def _as_for_nng(parser: Callable[..., Dict[str, Any]]) -> Callable[..., Dict[str, Any]]:
    @functools.wraps(parser)
    def parse(platform_spec: Any = None, **arguments: Any) -> Dict[str, Any]:
        if arguments.get("mq_type") != NAME:
            return parser(platform_spec, **arguments)
        as_nng = {**arguments, "mq_type": "nng"}
        _dialled_elsewhere[:] = _dialled_by_others(parser, platform_spec, as_nng)
        return {**parser(platform_spec, **as_nng), "mq_type": NAME}

    parse.divisi = True  # type: ignore[attr-defined]
    return parse


def _dialled_by_others(
    parser: Callable[..., Dict[str, Any]], spec: Any, arguments: Dict[str, Any]
) -> List[List[str]]:
    """What the workers of all other ranks will dial: their launchers read the same environment with
    another rank in it, so the parser is asked in their place."""
    dialled: List[List[str]] = []
    for variables in _other_ranks():
        before = {name: os.environ[name] for name in variables}
        try:
            os.environ.update(variables)
            # A copy: the parser completes the spec in place.
            theirs = parser(copy.deepcopy(spec), **arguments)
        finally:
            os.environ.update(before)
        addresses = [part for part in (theirs.get("attach_to") or "").split(",") if part]
        dialled += [addresses] * int(theirs.get("parallel_workers") or 1)
    return dialled


def _other_ranks() -> List[Dict[str, str]]:
    """The variables of every other rank of a Kubernetes job. A Slurm job is not known as well: its
    parser insists on the name of the host that it runs on."""
    nodes, rank = os.environ.get("DI_NODES"), os.environ.get("DI_RANK")
    if not nodes or rank is None:
        return []
    return [{"DI_RANK": str(k)} for k in range(len(nodes.split(","))) if str(k) != rank]


extend()
