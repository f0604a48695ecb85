"""How platforms name the nodes of a job."""

from divisi.launch import PLATFORM_PARSERS

__all__ = ["PLATFORM_PARSERS"]
