"""Ports for programs under test: free, and nobody else's until this process ends.

    port = free_port()
    hub, first, second = free_ports(3)

They lie below those that the kernel gives to outgoing connections, where a number that is free now may be taken
before the program binds it, and between those of a Kubernetes node (its daemons, its services). What one test
process was given no other gets: each number is a byte of one file, locked for the life of the process.
"""

import fcntl
import itertools
import os
import pathlib
import socket
import tempfile
import time

FIRST, END = 11_000, 30_000

_taken = open(pathlib.Path(tempfile.gettempdir(), f"divisi-test-ports-{os.getuid()}"), "ab")
# From a place of its own: a number that somebody has just left may still be dialled by a straggler.
_next = itertools.count(os.getpid() * 37)


def free_ports(count, addresses=("127.0.0.1",)):
    """`count` neighbouring ports that are free on every address."""
    for _ in range(FIRST, END):
        base = FIRST + next(_next) % (END - FIRST)
        ports = list(range(base, base + count))
        if _take(ports) and _are_free(ports, addresses):
            for _ in ports[1:]:
                next(_next)
            return ports
    raise RuntimeError(f"no {count} free ports between {FIRST} and {END}")


def free_port(count=1, addresses=("127.0.0.1",)):
    """The first of them."""
    return free_ports(count, addresses)[0]


def wait_until_it_listens(process, address, port, seconds=120):
    """Until somebody listens there, or the process has ended: it has met its peers already, or failed, which the caller
    looks at. By the kernel's list: a connection would be a stranger's."""
    wanted = "%02X%02X%02X%02X:%04X" % (*map(int, reversed(address.split("."))), port)
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        with open("/proc/net/tcp") as table:
            rows = [line.split() for line in table]
        if any(row[1] == wanted and row[3] == "0A" for row in rows):
            return
        assert time.monotonic() < deadline, f"nobody listens on {address}:{port}"
        time.sleep(0.01)


def _take(ports):
    try:
        fcntl.lockf(_taken, fcntl.LOCK_EX | fcntl.LOCK_NB, len(ports), ports[0])
    except OSError:
        return False
    return True


def _are_free(ports, addresses):
    probes = []
    try:
        for address, port in itertools.product(addresses, ports):
            probes.append(socket.socket())
            probes[-1].bind((address, port))
    except OSError:
        return False
    finally:
        for probe in probes:
            probe.close()
    return True
