"""PeriodicalModelExchanger: models with a number and an age."""

import math
import time
from typing import Any, Callable, Dict, Generator, Optional

from .._waiter import Waiter
from ..task import task
from ._latest_model import LatestModel
from ._roles import log
from ._storage import copied, load_into, loaded, shut_down_on_finish, state_of


class PeriodicalModelExchanger:
    """Sends a model every ``period`` iterations, or receives one and says how old it may be.

    The event carries ``{"id": number, "model": state, "time": seconds since 1970}``. Not gated: the
    mode says what a node does, whatever its roles.

    A receiver waits from its second iteration on, until it has a model that is newer than the one in
    use and younger than ``delay_toleration``; one model serves up to ``stale_toleration`` iterations.
    The wait ends with the task. Without a router nobody can send, so nothing is waited for.

    A receiver that joins late, or comes back as a new process, gets the newest model at once.

    :param model: an object with ``state_dict()`` and ``load_state_dict()``
    :param mode: ``"send"`` or ``"receive"``
    :param period: a sender: send when the number is divisible by it (with ``version``: has grown by
        it); a receiver: take models whose number is divisible by it
    :param delay_toleration: seconds after which a model is too old to begin with
    :param stale_toleration: how many iterations one model may serve; ``math.inf`` waits once only
    :param event_name: senders and receivers of one model use the same
    :param model_loader: as for :class:`ModelExchanger`
    :param version: a sender's number, from the context: ``lambda ctx: ctx.train_iter``. It goes on
        after the sender's restart; the default counts iterations from 0
    :param timeout: the longest wait in seconds; then a warning, and the old model is used on
    """

    def __init__(
        self,
        model: Any,
        mode: str,
        period: int = 1,
        delay_toleration: float = math.inf,
        stale_toleration: float = 1,
        event_name: str = "model_exchanger",
        model_loader: Any = None,
        version: Optional[Callable[[Any], int]] = None,
        timeout: float = 60.0,
    ) -> None:
        if mode not in ("send", "receive"):
            raise NotImplementedError(f"mode is 'send' or 'receive', not {mode!r}")
        self._model = model
        self._mode = mode
        self._period = period
        self._delay_toleration = delay_toleration
        self._stale_toleration = stale_toleration
        self._model_loader = model_loader
        self._version = version
        self._timeout = timeout
        if mode == "send":
            self._sender = LatestModel(event_name)
            self._count = 0
            self._last_sent = -math.inf
        else:
            self._waiter = Waiter(task)
            self._cache: Optional[Dict[str, Any]] = None  # guarded by the waiter's condition
            self._model_id = -1
            self._model_time = -math.inf
            self._model_stale = stale_toleration
            task.on(event_name, self._keep)
        if model_loader is not None:
            shut_down_on_finish(model_loader)

    @property
    def model_id(self) -> int:
        """A receiver's: the number of the model in use; -1 before the first."""
        return self._model_id

    def __call__(self, ctx: Any) -> Generator:
        if self._model_loader is not None:
            self._model_loader.start()
        if self._mode == "receive":
            if ctx.total_step > 0:
                self._receive()
            return
        yield
        self._send(ctx)

    # --- sending ---

    def _send(self, ctx: Any) -> None:
        if self._version is None:
            number, is_due = self._count, self._count % self._period == 0
            self._count += 1
        else:
            number = int(self._version(ctx))
            is_due = number >= self._last_sent + self._period
        if not is_due:
            return
        self._last_sent = number
        message = {"id": number, "model": None, "time": time.time()}
        if self._model_loader is None:
            self._sender.send({**message, "model": copied(state_of(self._model))})
        else:
            self._model_loader.save(
                lambda storage: self._sender.send_later({**message, "model": storage})
            )

    # --- receiving ---

    def _keep(self, message: Dict[str, Any]) -> None:
        if message["id"] % self._period != 0:
            return
        with self._waiter.changed:
            self._cache = message
            self._waiter.wake()

    def _take(self) -> Optional[Dict[str, Any]]:
        # What is of no use is forgotten here, so that a wait is for something else.
        with self._waiter.changed:
            message, self._cache = self._cache, None
        if message is None or self._is_too_old(message["time"]):
            return None
        # A smaller number that was sent later: the sender began anew.
        is_newer = message["id"] > self._model_id or message["time"] > self._model_time
        return message if is_newer else None

    def _is_too_old(self, sent: float) -> bool:
        return time.time() - sent >= self._delay_toleration

    def _receive(self) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            message = self._take()
            if message is not None and self._load(message):
                self._model_stale = 1
                return
            if self._model_stale < self._stale_toleration and not self._is_too_old(self._model_time):
                self._model_stale += 1
                return
            if not task.router.is_active:
                return
            left = deadline - time.monotonic()
            if not self._waiter.wait(lambda: self._cache is not None, left):
                break
        if not self._waiter.over():
            log.warning(
                "node %s waited %.0f s for a model that is new enough: none came",
                task.router.node_id, self._timeout,
            )
        self._model_stale += 1

    def _load(self, message: Dict[str, Any]) -> bool:
        try:
            load_into(self._model, loaded(message["model"], self._model_loader))
        except FileNotFoundError as error:
            log.warning("a model was deleted before it was loaded (longer ttl?): %s", error)
            return False
        self._model_id, self._model_time = message["id"], message["time"]
        return True
