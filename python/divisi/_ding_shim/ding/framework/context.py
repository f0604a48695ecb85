"""What one iteration knows."""

from divisi.context import Context, OfflineRLContext, OnlineRLContext

__all__ = ["Context", "OfflineRLContext", "OnlineRLContext"]
