"""Events of one process."""

from divisi.event_loop import EventLoop

__all__ = ["EventLoop"]
