"""The threads of asynchronous steps."""
import threading

import pytest

from divisi._pool import Pool

SOON = 30.0  # seconds; a deadline, nothing waits so long


def test_the_next_sync_joins_what_goes_on():
    pool, release, ended = Pool(2), threading.Event(), []

    def slow():
        assert release.wait(SOON)
        ended.append("slow")

    def wrong():
        raise ValueError("wrong")

    pool.submit(slow)
    pool.submit(wrong)
    with pytest.raises(ValueError, match="wrong"):
        pool.sync()
    joining = threading.Thread(target=pool.sync)
    joining.start()
    joining.join(0.2)
    assert joining.is_alive() and ended == []
    release.set()
    joining.join(SOON)
    assert not joining.is_alive() and ended == ["slow"]
    assert pool.close(SOON)


def test_what_is_not_joined_is_not_waited_for():
    pool, release = Pool(1), threading.Event()
    pool.submit(lambda: release.wait(SOON), joined=False)
    pool.sync()
    release.set()
    assert pool.close(SOON)


class Watched(threading.Condition):
    """Notes, when a thread of the pool enters it, how the job stands."""

    job = None

    def __init__(self):
        super().__init__()
        self.seen = []

    def __enter__(self):
        if threading.current_thread().name.startswith("divisi-step"):
            self.seen.append((self.job.error, self.job.is_done))
        return super().__enter__()


def test_a_failure_and_its_end_are_seen_together():
    pool, begin = Pool(1), threading.Event()
    pool._changed = watched = Watched()

    def wrong():
        assert begin.wait(SOON)
        raise ValueError("wrong")

    watched.job = pool.submit(wrong)
    begin.set()
    with pytest.raises(ValueError, match="wrong"):
        pool.sync()
    pool.sync()
    assert watched.seen == [(None, False)]
    assert pool.close(SOON)
