"""How far the training is, for ``kubectl get dijob -o wide``."""

from typing import Optional

from . import _native


def report_progress(
    env_steps_per_second: Optional[float] = None,
    episode_return: Optional[float] = None,
    eta_seconds: Optional[float] = None,
    *,
    whole_job: bool = True,
    **extra: float,
) -> None:
    """Reports figures to the di-server, in a pod of a DIJob; anywhere else nothing happens.

    They leave at most every two seconds, the latest of each name. Never waits for the network and never
    fails because of it. What is not given stays as it was reported last, here or by another process;
    figures that are not finite are left out.

    >>> report_progress(env_steps_per_second=12000, episode_return=187.5, loss=0.02)

    :param eta_seconds: until the end of the run
    :param whole_job: these are figures of the job, which is what kubectl shows (one process should report
        them); False: of this process only
    :param extra: at most 64 figures more
    :raises UsageError: for more than that, or a name of more than 63 characters
    """
    _native.report_progress(env_steps_per_second, episode_return, eta_seconds, extra, whole_job)
