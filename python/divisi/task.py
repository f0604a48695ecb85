"""Task: a pipeline of middleware that runs in iterations, and the events around it."""

import enum
import inspect
import itertools
import logging
import math
import threading
from functools import wraps
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple, Union

from . import _native
from ._pool import Pool
from ._target import chosen_policy, target_arguments
from .context import Context
from .errors import Error, UsageError
from .event_loop import _check_callable
from .parallel import Parallel

_log = logging.getLogger("divisi")

Middleware = Callable[[Any], Any]


class Role(str, enum.Enum):
    """Which part of a job a node plays. Members are equal to their strings."""

    LEARNER = "learner"
    """Trains the model."""
    COLLECTOR = "collector"
    """Plays, and sends what it has seen."""
    EVALUATOR = "evaluator"
    """Plays to measure the model."""
    FETCHER = "fetcher"
    """Prepares batches for the learner."""

    def __str__(self) -> str:  # the same text in every version of Python
        return self.value


class VoidMiddleware:
    """Does nothing, and ``task.use`` skips it."""

    def __call__(self, _: Any) -> None:
        return None


class _Suspend:
    def __await__(self) -> Any:
        yield


def suspend() -> _Suspend:
    """For middleware written as ``async def``: ``await suspend()`` is its one suspension."""
    return _Suspend()


def advance(fn: Middleware, ctx: Any) -> Optional[Any]:
    """Runs ``fn`` up to its suspension; the suspended generator, or None if it ended."""
    result = fn(ctx)
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration:
            return None
        return result
    return None


_told_twice: Set[str] = set()


def resume(suspended: Any) -> None:
    """Runs what follows the suspension."""
    try:
        suspended.send(None)
    except StopIteration:
        return
    name = getattr(suspended, "__qualname__", type(suspended).__name__)
    if name not in _told_twice:
        _told_twice.add(name)
        _log.warning("middleware %s suspends more than once; what follows is never run", name)
    suspended.close()


class _Turn:
    """A place in the queue for a lock; as a block, the lock, taken when those in front have had it.

    Jobs of the pool take their locks in the order of their submission: of two middleware under one
    lock the first registered runs first, whichever thread wakes up earlier.
    """

    __slots__ = ("_front", "_lock", "_taken")

    def __init__(self, lock: Any, front: "Optional[_Turn]"):
        self._lock = lock  # kept: turns are found by its id
        self._front = front
        self._taken = threading.Event()

    def over(self) -> bool:
        """Whether it has had the lock."""
        return self._taken.is_set()

    def __enter__(self) -> None:
        if self._front is not None:
            self._front._taken.wait()
            self._front = None
        try:
            self._lock.__enter__()
        finally:
            self._taken.set()

    def __exit__(self, *error: Any) -> Any:
        return self._lock.__exit__(*error)


class _Suspended:
    """A middleware between its two parts."""

    __slots__ = ("generator", "lock", "order")

    def __init__(self, generator: Any, lock: Any, order: Tuple[int, int]):
        self.generator = generator
        self.lock = lock
        self.order = order

    def resume(self) -> None:
        if self.lock is None:
            resume(self.generator)
        else:
            with self.lock:
                resume(self.generator)


def _lock_of(fn: Any) -> Any:
    """The lock that ``fn`` takes first of all, if :meth:`Task.wrap` made it; functools.wraps gives its
    attributes to others as well."""
    made, lock = getattr(fn, "divisi_made", (0, None))
    return lock if made == id(fn) else None


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", None) or type(fn).__name__


class Expectation:
    """An event that will be waited for, made by :meth:`Task.expect`; also a context manager."""

    def __init__(self, core: "_native.Expectation") -> None:
        self._core = core

    def wait(
        self,
        timeout: float = math.inf,
        ignore_timeout_exception: bool = True,
        wake_on_finish: bool = False,
    ) -> Optional[Tuple[tuple, dict]]:
        """As :meth:`Task.wait_for`; at once if the event has come. One that returned None may be
        repeated; once the event was given, or after :meth:`close`, it is a UsageError."""
        return self._core.wait(timeout, wake_on_finish, ignore_timeout_exception)

    def close(self) -> None:
        """Nobody listens any more. The end of the object, or of its ``with`` block, does the same."""
        self._core.close()

    def __enter__(self) -> "Expectation":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Task:
    """A pipeline of middleware that runs in iterations, and the events around it.

    >>> with task.start(ctx=OnlineRLContext()):
    ...     task.on("greeting", print)
    ...     task.use(lambda ctx: task.emit("greeting", "Hi"))
    ...     task.run(max_step=10)

    A middleware takes the context. Written as a generator, it suspends once: what stands before the
    ``yield`` is its forward part, what follows its backward part. One iteration runs the forward
    parts in the order of :meth:`use`, then the backward parts in reverse, then renews the context.

    Under :class:`Parallel` (or ``ditask``) events reach the linked processes as well. ``task`` is
    one object in a process; further ``Task()`` may be made, all share the process's router.

    The keyword arguments are those of an implicit :meth:`start`, on entering ``with Task() as t:``
    or on first use.
    """

    role = Role
    """So that ``task.role.LEARNER`` needs no import."""

    def __init__(
        self,
        async_mode: bool = False,
        n_async_workers: int = 3,
        middleware: Optional[Iterable[Middleware]] = None,
        step_wrappers: Optional[Iterable[Callable]] = None,
        event_listeners: Optional[Dict[str, Iterable[Callable]]] = None,
        once_listeners: Optional[Dict[str, Iterable[Callable]]] = None,
        attach_callback: Optional[Callable] = None,
        labels: Optional[Set[str]] = None,
        auto_sync_ctx: Optional[bool] = None,
        _shared: bool = False,
        **_: Any,
    ) -> None:
        self.router = Parallel()
        """The router of this process."""
        self._shared = _shared
        self._core = _native.TaskEvents(_shared)
        self._given: Dict[str, Any] = {
            "async_mode": async_mode,
            "n_async_workers": n_async_workers,
            "labels": labels,
        }
        self._initial = (middleware, step_wrappers, event_listeners, once_listeners)
        self._attach_callback = attach_callback
        self._auto_sync_ctx = bool(auto_sync_ctx)
        self._ever_started = False
        self._of_main = False  # began in a worker's main
        self._lock = threading.RLock()
        self._submitting = threading.Lock()
        self._slot = threading.local()
        self.async_mode = async_mode
        """As given to :meth:`start`."""
        self.n_async_workers = n_async_workers
        """As given to :meth:`start`."""
        self.ctx: Any = None
        """The context of this iteration."""
        self.parallel_ctx: Any = None
        """The latest context of a peer (``auto_sync_ctx``), or None."""
        self._clear()

    def _clear(self) -> None:
        self._middleware: List[Middleware] = []
        self._wrappers: List[Callable] = []
        self._backward_stack: Dict[int, _Suspended] = {}
        self._finish_hooks: List[Callable] = []
        self._pool: Optional[Pool] = None
        self._slots = itertools.count()
        self._discarded = -1  # up to this slot nothing is resumed any more
        self._pushes = itertools.count()
        self._turns: Dict[int, _Turn] = {}  # by the lock's id: the last one that waits for it
        self._failed = False  # a middleware on the pool raised
        self._wakers: List[Callable[[], None]] = []  # of threads that wait (divisi._waiter)

    # --- life ---

    def start(
        self,
        async_mode: bool = False,
        n_async_workers: int = 3,
        ctx: Optional[Context] = None,
        labels: Optional[Set[str]] = None,
        stop_timeout: float = 30.0,
        on_error: str = "raise",
    ) -> "Task":
        """Begins a fresh life with an empty pipeline; use it as ``with task.start(...):``.

        :param async_mode: run the forward parts of an iteration at the same time, on a pool
        :param n_async_workers: threads of that pool
        :param ctx: the first context; default a plain :class:`Context`
        :param labels: added to the labels that the task gives itself, for :meth:`match_labels` and
            for emits to a label, also those of peers
        :param stop_timeout: the longest wait for queued events and running middleware at the end
        :param on_error: ``"raise"`` or ``"log"`` what a listener raises
        """
        if n_async_workers < 1:
            raise UsageError(f"n_async_workers must be at least 1, not {n_async_workers}")
        if on_error not in ("raise", "log"):
            raise UsageError(f"on_error is 'raise' or 'log', not {on_error!r}")
        self._core.start(
            {str(label) for label in labels or ()}, async_mode, n_async_workers, stop_timeout,
            on_error == "log",
        )
        self._ever_started = True
        self._of_main = self.router.is_active
        self._clear()
        self.async_mode = async_mode
        self.n_async_workers = n_async_workers
        self._stop_timeout = stop_timeout
        self._set_ctx(ctx if ctx is not None else Context())
        self.parallel_ctx = None
        if async_mode or self.router.is_active:
            self._pool = Pool(n_async_workers)
        if self._auto_sync_ctx and self.router.is_active:
            self.on("sync_parallel_ctx", self.sync_parallel_ctx)
        return self

    def _start_as_given(self) -> None:
        self.start(**self._given)
        middleware, wrappers, listeners, once_listeners = self._initial
        for wrapper in wrappers or ():
            self.use_wrapper(wrapper)
        for fn in middleware or ():
            self.use(fn)
        for event, fns in (listeners or {}).items():
            for fn in fns:
                self.on(event, fn)
        for event, fns in (once_listeners or {}).items():
            for fn in fns:
                self.once(event, fn)
        if self._attach_callback is not None and self.router.get_attch_to_len() > 0:
            came = self.wait_for("sync_parallel_ctx", timeout=30)
            if came is None:
                raise TimeoutError("attach timeout: no peer sent its context within 30 s")
            self._attach_callback(came[0][0])

    def _need(self, call: str, may_start: bool = False) -> None:
        if self._core.running():
            return
        if may_start and not self._ever_started:
            self._start_as_given()
            return
        raise UsageError(
            f"task.{call} was called while the task is not running: the task must be started "
            "first, with task.start()"
        )

    def __enter__(self) -> "Task":
        if not self._core.running():
            self._start_as_given()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if kind is None:
            self.stop()
            return
        try:
            self._stop(failed=issubclass(kind, Exception))
        except Exception:  # the error that ends the block is the one to tell
            _log.exception("while the task stopped")

    def stop(self) -> None:
        """Runs what is queued, tells the peers to finish, clears everything, then raises the error
        of a listener that nobody has seen. Nothing when the task is not running."""
        self._stop(failed=False)

    def _stop(self, failed: bool) -> None:
        if not self._core.running():
            return
        first: Optional[BaseException] = None
        hooks, self._finish_hooks = self._finish_hooks, []
        for hook in hooks:
            try:
                hook(self.ctx)
            except Exception as error:
                first = first or error
        try:
            self._core.stop(failed)
        except Exception as error:
            first = first or error
        pool, self._pool = self._pool, None
        if pool is not None and not pool.close(0.0 if pool.is_current() else self._stop_timeout):
            _log.error(
                "a middleware still runs %.0f s after the task stopped; its thread is left to itself",
                self._stop_timeout,
            )
        self._wake()
        self._discard_suspended()
        self._middleware = []
        self._wrappers = []
        if first is not None:
            raise first

    def _main_ended(self, failed: bool) -> None:
        """What main left running ends, so that the next one begins as the first did."""
        running = self._core.running()
        if running and not self._of_main:
            return
        self._ever_started = False
        if not running:
            return
        if failed:
            self._core.off("*")
        self._stop(failed)

    def on_finish(self, hook: Callable[[Any], Any]) -> "Task":
        """Calls ``hook(ctx)`` once, right before the task stops, in every case."""
        self._need("on_finish", may_start=True)
        _check_callable(hook)
        self._finish_hooks.append(hook)
        return self

    @property
    def running(self) -> bool:
        """True between ``start`` and the end of ``stop``."""
        return self._core.running()

    @property
    def finish(self) -> bool:
        """Set it to leave the loop at the end of the iteration. Peers are told when the task stops."""
        return self._core.finish()

    @finish.setter
    def finish(self, value: bool) -> None:
        self._core.set_finish(bool(value))
        self._wake()

    def _wake(self) -> None:
        for waker in list(self._wakers):
            waker()

    # --- pipeline ---

    def use(
        self, fn: Middleware, lock: Any = False, filter_labels: Optional[Iterable[str]] = None
    ) -> "Task":
        """Appends a middleware.

        :param lock: False, True (the task's own lock) or a lock: held while its parts run; in async
            mode those under one lock take it in the order of ``use``
        :param filter_labels: register it only if one of these patterns matches a label
        """
        self._need("use", may_start=True)
        if not callable(fn):
            raise UsageError(f"a middleware is a callable of one argument, not a {type(fn).__name__}")
        if isinstance(fn, VoidMiddleware):
            return self
        if filter_labels and not self.match_labels(filter_labels):
            return self
        for wrapper in self._wrappers:
            fn = wrapper(fn)
        self._middleware.append(self.wrap(fn, lock=lock))
        return self

    def use_wrapper(self, fn: Callable[[Middleware], Middleware]) -> "Task":
        """Applies ``fn`` to every middleware, registered already or later."""
        self._need("use_wrapper", may_start=True)
        _check_callable(fn)
        self._wrappers.append(fn)
        self._middleware = [self._rewrap(fn, middleware) for middleware in self._middleware]
        return self

    use_step_wrapper = use_wrapper

    def _rewrap(self, wrapper: Callable, registered: Any) -> Middleware:
        return self.wrap(wrapper(registered.divisi_inner), lock=registered.divisi_lock)

    @staticmethod
    def void() -> VoidMiddleware:
        """A middleware that does nothing and is skipped by :meth:`use`."""
        return VoidMiddleware()

    def run(self, max_step: int = int(1e12)) -> None:
        """Runs until ``finish`` is set or ``max_step`` iterations are done. Raises what a middleware
        raises; returns at once when there is none."""
        self._need("run")
        if not self._middleware:
            return
        self._core.ready()
        for i in range(max_step):
            self._end_iteration()  # of one that failed, or of steps outside of run
            try:
                for fn in list(self._middleware):
                    self.forward(fn)
                self.sync()
                self.backward()
                self.sync()
            except BaseException:
                self._discard_suspended()
                raise
            self._end_iteration()
            if i == max_step - 1:
                self.finish = True
            if self.finish:
                return
            self.renew()

    def forward(
        self, fn: Middleware, ctx: Any = None, async_mode: Optional[bool] = None
    ) -> Any:
        """Runs ``fn`` to its suspension or end: the suspended generator or None; in async mode it is
        submitted to the pool and the task returned. ``fn`` need not be registered."""
        self._need("forward")
        ctx = self.ctx if ctx is None else ctx
        if not (self.async_mode if async_mode is None else async_mode):
            return self._begin(fn, ctx, next(self._slots))
        pool = self._pool_for("forward")
        wrapped: Any = fn
        lock = _lock_of(wrapped)
        if lock is None:
            slot = next(self._slots)
            pool.submit(lambda: self._in_step(slot, lambda: self._begin(fn, ctx, slot)))
            return self
        # The places in the queues for the lock and for a thread go together: nobody waits for the
        # turn of one that starts later.
        with self._submitting:
            slot = next(self._slots)
            turns = {key: turn for key, turn in self._turns.items() if not turn.over()}
            turn = turns[id(lock)] = _Turn(lock, turns.get(id(lock)))
            self._turns = turns
            begin = lambda: self._begin(lambda ctx: wrapped(ctx, turn), ctx, slot)  # noqa: E731
            pool.submit(lambda: self._in_step(slot, begin))
        return self

    def _in_step(self, slot: int, call: Callable[[], Any]) -> Any:
        """A wait sees what later steps of its iteration emitted before it, so waits and emits on the
        pool are known by their step."""
        if not self.async_mode:
            return call()
        outer = self._core.enter_step(slot + 1)
        try:
            return call()
        finally:
            self._core.enter_step(outer)

    def _begin(self, fn: Middleware, ctx: Any, slot: int) -> Any:
        outer = getattr(self._slot, "current", None)
        self._slot.current = slot if outer is None else outer
        try:
            suspended = advance(fn, ctx)
            if suspended is not None:
                self._push(suspended, None)
            return suspended
        finally:
            self._slot.current = outer

    def _end_iteration(self) -> None:
        if self.async_mode:
            self._core.end_iteration()

    def _push(self, generator: Any, lock: Any) -> _Suspended:
        slot = getattr(self._slot, "current", None)
        with self._lock:
            order = (next(self._slots) if slot is None else slot, next(self._pushes))
            suspended = _Suspended(generator, lock, order)
            if order[0] > self._discarded:
                self._backward_stack[id(generator)] = suspended
                return suspended
        self._discard(suspended)  # its iteration was abandoned while it still ran
        return suspended

    def _take(self, suspended: _Suspended) -> bool:
        with self._lock:
            return self._backward_stack.pop(id(suspended.generator), None) is suspended

    def backward(
        self, backward_stack: Optional[Dict[Any, Any]] = None, async_mode: Optional[bool] = None
    ) -> Optional["Task"]:
        """Resumes what is suspended, last in first out, once each. In async mode one job does all of
        it, and the task is returned: ``backward().sync()``."""
        self._need("backward")
        given = dict(backward_stack) if backward_stack else None
        if backward_stack:
            backward_stack.clear()

        def resume_all() -> None:
            if given is not None:
                for suspended in reversed(list(given.values())):
                    entry = self._backward_stack.get(id(suspended))
                    if entry is None:
                        resume(suspended)
                    elif self._take(entry):
                        entry.resume()
                return
            while True:
                with self._lock:
                    if not self._backward_stack:
                        return
                    last = max(self._backward_stack.values(), key=lambda entry: entry.order)
                    del self._backward_stack[id(last.generator)]
                self._in_step(last.order[0], last.resume)

        if self.async_mode if async_mode is None else async_mode:
            self._pool_for("backward").submit(resume_all)
            return self
        resume_all()
        return None

    def _discard_suspended(self) -> None:
        # In reverse, so that their `finally` blocks run in a fixed order.
        with self._lock:
            self._discarded = next(self._slots)
            left = sorted(self._backward_stack.values(), key=lambda entry: entry.order)
            self._backward_stack.clear()
        for entry in reversed(left):
            self._discard(entry)

    @staticmethod
    def _discard(entry: _Suspended) -> None:
        try:
            entry.generator.close()
        except ValueError:  # still running, in a thread that was left to itself
            pass
        except Exception:
            _log.exception("while a suspended middleware was discarded")

    def wrap(self, fn: Middleware, lock: Any = False) -> Middleware:
        """Makes ``fn`` callable from inside another middleware: ``back = wrapped(ctx)`` runs its
        forward part, ``back()`` its backward part; if you never call it, that runs in its turn."""
        if lock is False:
            mutex = None
        elif lock is True:
            mutex = self._lock_of_steps
        else:
            mutex = lock

        def forward(ctx: Any, turn: Optional[_Turn] = None) -> Callable[[], None]:
            if mutex is None:
                generator = advance(fn, ctx)
                entry = None if generator is None else self._push(generator, mutex)
            else:
                with mutex if turn is None else turn:
                    generator = advance(fn, ctx)
                    entry = None if generator is None else self._push(generator, mutex)

            def back() -> None:
                if entry is not None and self._take(entry):
                    entry.resume()

            return back

        wrapped: Any = wraps(fn)(forward) if hasattr(fn, "__name__") else wraps(type(fn))(forward)
        wrapped.divisi_inner = fn
        wrapped.divisi_lock = lock
        wrapped.divisi_made = (id(wrapped), mutex)
        return wrapped

    @property
    def _lock_of_steps(self) -> Any:
        lock = self.__dict__.get("_thread_lock")
        if lock is None:
            lock = self.__dict__["_thread_lock"] = threading.RLock()
        return lock

    def serial(self, *fns: Middleware) -> Middleware:
        """Several middleware as one: in order, in the calling thread; backward parts in reverse."""
        return self._serial("serial", fns)

    def sequence(self, *fns: Middleware) -> Middleware:
        """The old name of :meth:`serial`."""
        return self._serial("sequence", fns)

    def _serial(self, kind: str, fns: Tuple[Middleware, ...]) -> Middleware:
        fns = tuple(fn for fn in fns if not isinstance(fn, VoidMiddleware))

        def _run_in_order(ctx: Any) -> Any:
            suspended: List[Any] = []
            try:
                for fn in fns:
                    generator = advance(fn, ctx)
                    if generator is not None:
                        suspended.append(generator)
                if suspended:
                    yield
                    while suspended:
                        resume(suspended.pop())
            finally:
                while suspended:
                    suspended.pop().close()

        _run_in_order.__name__ = f"{kind}<{','.join(map(_name_of, fns))}>"
        return _run_in_order

    def parallel(self, *fns: Middleware) -> Middleware:
        """Several middleware as one: at the same time on the pool, joined before it returns. Not in
        async mode, where everything is parallel already."""
        fns = tuple(fn for fn in fns if not isinstance(fn, VoidMiddleware))
        if self.async_mode:
            raise UsageError("task.parallel is not for async mode: use serial there")

        def _run_together(ctx: Any) -> Any:
            pool = self._pool_on_demand()

            def together(calls: List[Callable[[], Any]]) -> List[Any]:
                jobs = [pool.submit(call, joined=False) for call in calls]
                pool.wait(jobs)
                return [job.result for job in jobs]

            suspended = [
                generator
                for generator in together([lambda fn=fn: advance(fn, ctx) for fn in fns])  # type: ignore[misc]
                if generator is not None
            ]
            try:
                if suspended:
                    yield
                    resuming, suspended = suspended, []
                    together([lambda one=one: resume(one) for one in reversed(resuming)])  # type: ignore[misc]
            finally:
                while suspended:
                    suspended.pop().close()

        _run_together.__name__ = f"parallel<{','.join(map(_name_of, fns))}>"
        return _run_together

    def _pool_on_demand(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self.n_async_workers)
        return self._pool

    def _pool_for(self, call: str) -> Pool:
        if self._pool is None:
            raise Error(f"task.{call} on the pool: use it in async or parallel mode")
        return self._pool

    def renew(self) -> "Task":
        """Replaces the context by its successor."""
        self._need("renew")
        old = self.ctx
        self._set_ctx(old.renew())
        if self._auto_sync_ctx and self.router.is_active:
            self.emit("sync_parallel_ctx", old, only_remote=True)
        return self

    def _set_ctx(self, ctx: Any) -> None:
        try:
            ctx.__dict__["_task"] = self  # ctx.finish
        except AttributeError:
            pass  # a context without attributes of its own
        self.ctx = ctx

    def sync_parallel_ctx(self, ctx: Any) -> None:
        """Keeps a context that a peer has sent (``auto_sync_ctx``) in ``parallel_ctx``."""
        self.parallel_ctx = ctx
        if getattr(ctx, "finish", False):
            self.finish = True

    def sync(self) -> "Task":
        """Waits for everything submitted to the pool; raises the first failure, or the error of a
        listener that was not raised yet."""
        pool = self._pool
        if pool is not None:
            try:
                pool.sync()
            except BaseException:
                self._core.fail()
                self._failed = True
                self._wake()
                raise
        self._core.raise_stored()
        return self

    def async_executor(self, fn: Callable, *args: Any, **kwargs: Any) -> None:
        """Runs ``fn`` on the pool; the next :meth:`sync` joins it."""
        self._pool_for("async_executor").submit(lambda: fn(*args, **kwargs))

    # --- events ---

    def emit(
        self,
        event: str,
        *args: Any,
        only_remote: bool = False,
        only_local: bool = False,
        to: Any = None,
        one_of: bool = False,
        policy: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        """To the listeners here and, under an active router, in every linked process.

        Returns at once, except when the queue towards a peer is full (``policy``).

        :param only_local: not to other processes (wins over ``only_remote``)
        :param only_remote: not to the listeners here
        :param to: a node id, a pattern of labels (``distributed``, ``node.<id>``, the launchers' and,
            while a task runs, those given to its :meth:`start`), or a :class:`Role`; default everybody
        :param one_of: exactly one of those that ``to`` means, in turn (a work queue)
        :param policy: ``block``, ``error``, ``drop_oldest`` or ``latest_only``; default the runner's
            ``send_policy``
        """
        core = self._core
        if not core.running():
            self._need("emit")
        if to is None and policy is None and not one_of:
            core.emit(event, args, kwargs, only_local, only_remote)
        else:
            core.emit_to(
                event, args, kwargs, only_local, only_remote, *target_arguments(to, one_of),
                chosen_policy(policy),
            )

    def emit_remote(self, event: str, *args: Any, **kwargs: Any) -> None:
        """As :meth:`emit` with ``only_remote=True``."""
        if not self.router.is_active:
            _log.debug("event %s is for peers only, but the router is not active", event)
        self.emit(event, *args, only_remote=True, **kwargs)

    def exit(self, event: str, *args: Any, **kwargs: Any) -> None:
        """A deprecated name of :meth:`emit`; one listing of a published guide uses it."""
        self.emit(event, *args, **kwargs)

    def on(self, event: str, fn: Callable) -> None:
        """Calls ``fn`` for every emit of ``event``, here or in a linked process."""
        self._need("on", may_start=True)
        _check_callable(fn)
        self._core.on(event, fn, False)

    def once(self, event: str, fn: Callable) -> None:
        """As :meth:`on`, for the first one only."""
        self._need("once", may_start=True)
        _check_callable(fn)
        self._core.on(event, fn, True)

    def off(self, event: str, fn: Optional[Callable] = None) -> None:
        """Removes the first registration of ``fn``, or all listeners. ``event`` is a glob."""
        self._need("off", may_start=True)
        if fn is None:
            self._core.off(event)
        else:
            self._core.off_function(event, fn)

    def wait_for(
        self,
        event: str,
        timeout: float = math.inf,
        ignore_timeout_exception: bool = True,
        wake_on_finish: bool = False,
    ) -> Optional[Tuple[tuple, dict]]:
        """Blocks until the event comes: ``(args, kwargs)``.

        None after the time-out (or TimeoutError, if it shall not be ignored), when the task fails
        or stops, and with ``wake_on_finish`` when ``finish`` becomes true. The event must come from
        another thread or process. In async mode it may also have come already in this iteration, from
        a middleware that stands later in the pipeline.
        """
        self._need("wait_for")
        return self._core.wait_for(event, timeout, wake_on_finish, ignore_timeout_exception)

    def expect(self, event: str) -> "Expectation":
        """Announces that ``event`` will be waited for: the first one from here on is kept.

        For an answer under a name of its own, which a peer could give before it knows that somebody
        waits::

            with task.expect("reply_17") as reply:
                task.emit("ask", 17)
                args, kwargs = reply.wait()
        """
        self._need("expect")
        return Expectation(self._core.expect(event))

    def listened(self, event: str) -> bool:
        """Whether the event has a listener here."""
        return self._core.listened(event)

    @property
    def _exception(self) -> Optional[BaseException]:
        return self._core.error()

    # --- who we are ---

    @property
    def labels(self) -> Set[str]:
        """``standalone``, or ``distributed``, ``node.<id>`` and the launcher's; ``async``; and the
        labels given to :meth:`start`."""
        return self._core.labels()

    def match_labels(self, patterns: Union[str, Iterable[str]]) -> bool:
        """Whether one of the patterns (``*``, ``?``, ``[a-z]``) matches one of the labels."""
        return self._core.match_labels([patterns] if isinstance(patterns, str) else list(patterns))

    @property
    def roles(self) -> Set[Role]:
        """The roles that were added."""
        known = {role.value: role for role in Role}
        return {known.get(role, role) for role in self._core.roles()}  # type: ignore[arg-type]

    def add_role(self, role: Role) -> None:
        """Makes this node play a role: a member of :class:`Role`, or a name of your own."""
        self._need("add_role", may_start=True)
        self._core.add_role(role.value if isinstance(role, Role) else str(role))

    def has_role(self, role: Role) -> bool:
        """True for every role while none was added, then only for those."""
        return self._core.has_role(role.value if isinstance(role, Role) else str(role))

    def get_attch_to_len(self) -> int:
        """How many addresses this node dials."""
        if not self.router.is_active:
            raise RuntimeError(
                "get_attch_to_len needs an active router: run under Parallel or ditask"
            )
        return self.router.get_attch_to_len()

    get_attach_to_len = get_attch_to_len


task = Task(_shared=True)
"""The task of this process."""


def run_as_main(main: Callable[[], Any]) -> None:
    """Calls a worker's main, and stops what it left running of the process's task."""
    try:
        main()
    except BaseException as error:
        try:
            task._main_ended(failed=isinstance(error, Exception))
        except Exception:  # the error of main is the one to tell
            _log.exception("after main had failed")
        raise
    task._main_ended(failed=False)
