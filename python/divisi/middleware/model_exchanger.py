"""ModelExchanger: the learner's model goes to everybody else after every iteration."""

import time
from typing import Any, Generator, Optional

from .._waiter import Waiter
from ..task import Role, task
from ._latest_model import LatestModel
from ._roles import Exchanger, log
from ._storage import copied, load_into, loaded, shut_down_on_finish, state_of


class ModelExchanger(Exchanger):
    """The learner sends its model after every iteration; all others wait for a new one before each
    iteration but the first, and load it.

    Only the newest model counts: a receiver that is behind skips the others. One that joins late, or
    comes back as a new process, gets the newest at once. The wait ends with the task.

    Void without a router, and (with a warning) without roles. Not needed where processes share the
    model's memory.

    :param model: an object with ``state_dict()`` and ``load_state_dict()``, such as a torch module
    :param model_loader: sends handles in place of states: an object with ``start()``,
        ``save(callback)``, ``load(handle)`` and ``shutdown()``
    :param timeout: the longest wait in seconds; then a warning, and the old model is used on
    """

    def __init__(self, model: Any, model_loader: Any = None, timeout: float = 60.0) -> None:
        self._model = model
        self._model_loader = model_loader
        self._timeout = timeout
        self._sender: Optional[LatestModel] = None
        self._cache: Any = None  # guarded by the waiter's condition
        if task.has_role(Role.LEARNER):
            self._sender = LatestModel("model_exchanger")
        else:
            self._waiter = Waiter(task)
            task.on("model_exchanger", self._keep)
        if model_loader is not None:
            shut_down_on_finish(model_loader)

    def __call__(self, ctx: Any) -> Generator:
        if self._model_loader is not None:
            self._model_loader.start()
        if self._sender is None:
            if ctx.total_step > 0:
                self._receive()
            return
        yield
        if self._model_loader is None:
            self._sender.send(copied(state_of(self._model)))
        else:
            self._model_loader.save(self._sender.send_later)

    def _keep(self, payload: Any) -> None:
        with self._waiter.changed:
            self._cache = payload
            self._waiter.wake()

    def _receive(self) -> None:
        deadline = time.monotonic() + self._timeout
        while self._waiter.wait(lambda: self._cache is not None, deadline - time.monotonic()):
            with self._waiter.changed:
                payload, self._cache = self._cache, None
            try:
                load_into(self._model, loaded(payload, self._model_loader))
                return
            except FileNotFoundError as error:
                log.warning("a model was deleted before it was loaded (longer ttl?): %s", error)
        if not self._waiter.over():
            log.warning(
                "node %s waited %.0f s for a new model: none came",
                task.router.node_id, self._timeout,
            )
