"""The queues behind the router. `nng` is the name; the transport is divisi's own."""

from ..._missing import not_built
from .mq import MQ
from .nng import NNGMQ

__all__ = ["MQ", "NNGMQ"]
__getattr__ = not_built(__name__, "RedisMQ")
