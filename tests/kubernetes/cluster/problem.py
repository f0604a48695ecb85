"""What every part raises when it cannot go on, and how it waits."""

import time


class Problem(Exception):
    """One line for the person who typed the command: what was being done, why it failed, what to try."""


def wait_until(what, predicate, seconds, check=lambda: None):
    """Returns predicate()'s first true value. check() may raise to end the waiting early."""
    deadline = time.monotonic() + seconds
    while True:
        check()
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Problem(f"waited {seconds} s for {what}, in vain")
        time.sleep(0.05)
