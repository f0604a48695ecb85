"""Small programs of several processes: started, watched, and nothing left of them."""
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import divisi

PACKAGES = str(Path(divisi.__file__).parent.parent)
"""The folder that holds the package under test."""

DEADLINE_S = 90.0
"""For a program that shall end by itself: ends in a second, on an idle machine."""

PREAMBLE = '''
import json, os, signal, sys, threading, time
import divisi
from divisi import *

def tell(*values):
    """A result: what the test checks."""
    sys.stdout.write("RESULT " + json.dumps(values) + "\\n")
    sys.stdout.flush()

class Gathered(list):
    """What listeners got; wait(n) until there are so many."""
    def __init__(self):
        self.changed = threading.Condition()
    def add(self, *values):
        with self.changed:
            self.append(values[0] if len(values) == 1 else values)
            self.changed.notify_all()
    def wait(self, count, timeout=60):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self) >= count, timeout):
                raise RuntimeError(f"{len(self)} of {count} came: {self[-10:]}")

def me():
    return Parallel().node_id
'''
"""In front of every program."""

TOKEN = "DIVISI_TEST_PROGRAM"


class Ended:
    """A program that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __iter__(self):
        return iter((self.code, self.out, self.err))

    def __repr__(self):
        return f"exit code {self.code}\n--- out ---\n{self.out}\n--- err ---\n{self.err}"

    @property
    def results(self):
        """The values of every `tell`, in order."""
        return [json.loads(text) for text in re.findall(r"^(?:\[node \d+\] )?RESULT (.*)$", self.out, re.M)]

    def of_nodes(self):
        """{first value of a `tell`: the second}, for one `tell(me(), value)` in each node."""
        return {node: value for node, value in self.results}

    def ok(self):
        """Itself, if the program succeeded."""
        assert self.code == 0, self
        return self

    @property
    def last_line(self):
        """What a person reads first: the last line of the standard error."""
        return self.err.strip().rsplit("\n", 1)[-1]


def processes_with(token):
    """Ids of living processes that inherited the token."""
    wanted = f"{TOKEN}={token}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open(f"/proc/{entry}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if wanted in variables and state != "Z":
            found.append(int(entry))
    return found


class Output:
    """What a stream says, read by a thread: whoever waits for a line has a deadline, and a program that says
    much is never held up."""

    def __init__(self, stream):
        self._stream = stream
        self._lines = []  # those that nobody has asked for yet
        self._over = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self._stream:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def up_to(self, text, deadline):
        """The lines up to the first that contains the text; None if it has not come by then."""
        with self._changed:
            seen = 0
            while True:
                for seen in range(seen, len(self._lines)):
                    if text in self._lines[seen]:
                        found, self._lines = self._lines[:seen + 1], self._lines[seen + 1:]
                        return found
                seen = len(self._lines)
                if self._over or not self._changed.wait(max(0.0, deadline - time.monotonic())):
                    return None

    def ends(self, deadline):
        """Whether it ended by then."""
        with self._changed:
            return self._changed.wait_for(lambda: self._over, max(0.0, deadline - time.monotonic()))

    def rest(self):
        """What is there by now and nobody has asked for."""
        with self._changed:
            rest, self._lines = self._lines, []
            return "".join(rest)

    def close(self):
        """After the end of whoever writes."""
        self._reader.join(DEADLINE_S)
        self._stream.close()


class Program:
    """A running program. Whatever it started is found by its environment."""

    def __init__(self, folder, source, arguments, env, flags=(), preamble=True):
        self.token = secrets.token_hex(8)
        self.path = folder / f"program_{self.token}.py"
        self.path.write_text((PREAMBLE if preamble else "") + textwrap.dedent(source))
        variables = {key: value for key, value in os.environ.items() if not key.startswith("DIVISI_")}
        variables.update({"PYTHONPATH": PACKAGES, TOKEN: self.token}, **(env or {}))
        self.process = subprocess.Popen(
            [sys.executable, *flags, str(self.path), *map(str, arguments)],
            env=variables, cwd=folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
        )
        self.out, self.err = Output(self.process.stdout), Output(self.process.stderr)

    def kill(self):
        """All of its processes."""
        for pid in processes_with(self.token):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def wait_line(self, text, timeout=DEADLINE_S):
        """Reads the standard output up to the line that contains the text."""
        seen = self.out.up_to(text, time.monotonic() + timeout)
        if seen is not None:
            return seen[-1]
        self.kill()
        raise AssertionError(f"{text!r} was not printed\n{self._told()}")

    def end(self, timeout=DEADLINE_S):
        """Waits for the end, and that nothing is left behind."""
        deadline = time.monotonic() + timeout
        try:
            if not (self.out.ends(deadline) and self.err.ends(deadline)):
                raise subprocess.TimeoutExpired(self.process.args, timeout)
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            left = processes_with(self.token)
            self.kill()
            raise AssertionError(f"still runs after {timeout} s: {left}\n{self._told()}") from None
        out, err = self.out.rest(), self.err.rest()
        ended = Ended(self.process.returncode, out, err)
        deadline = time.monotonic() + 10
        while left := processes_with(self.token):  # the kernel may need a moment
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"processes {left} were left behind\n{ended}")
            time.sleep(0.01)
        return ended

    def _told(self):
        """Everything that is left of its output; it was killed."""
        deadline = time.monotonic() + 10
        self.out.ends(deadline)
        self.err.ends(deadline)
        return f"{self.out.rest()}\n{self.err.rest()}"

    def close(self):
        """Nothing of it is left."""
        self.kill()
        self.process.wait()
        self.out.close()
        self.err.close()
