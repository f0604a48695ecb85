"""The command line, and the training of one process."""

from divisi.serial import serial_pipeline

__all__ = ["serial_pipeline"]
