"""TensorBoard's files as tables: the names of `divisi.tune.tensorboard`."""

from divisi.tune.tensorboard import (
    tb_create_range_plots, tb_extract_log, tb_extract_recursive_logs, tb_has_log,
)  # fmt: skip

__all__ = ["tb_create_range_plots", "tb_extract_log", "tb_extract_recursive_logs", "tb_has_log"]
