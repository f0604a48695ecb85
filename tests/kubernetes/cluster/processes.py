"""Daemons that are known by a file, and stopped by what the file says.

A record holds the pid, the start time in clock ticks and the boot, so that a recycled pid is never taken
for ours. It is written before the program runs: whoever is killed in between leaves no unknown process.
"""

import dataclasses
import os
import pathlib
import select
import signal

from .problem import Problem


def boot():
    return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_time(pid):
    """None for a process that is gone or a zombie."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


@dataclasses.dataclass(frozen=True)
class Record:
    pid: int
    started: int
    boot: str

    @staticmethod
    def of(pid):
        return Record(pid, start_time(pid) or 0, boot())

    @staticmethod
    def read(path):
        """None where there is no record, or only the beginning of one."""
        try:
            pid, started, when = path.read_text().split()
            return Record(int(pid), int(started), when)
        except (FileNotFoundError, ValueError):
            return None

    def write(self, path):
        path.write_text(f"{self.pid} {self.started} {self.boot}\n")

    def alive(self):
        return self.boot == boot() and start_time(self.pid) == self.started

    def descriptor(self):
        """A pidfd of exactly this process, or None. Looked at again after opening: only then is it surely ours."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if self.alive():
            return descriptor
        os.close(descriptor)
        return None


def stop(record):
    """SIGKILL, and returns once the process is gone. Of the init of a pid namespace that means that everything
    inside it is gone too. Nobody is asked to end in peace: what they would tidy up is thrown away as a whole."""
    descriptor = record.descriptor()
    if descriptor is None:
        return
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        if not poller.poll(30_000):
            raise Problem(f"process {record.pid} does not die, even of SIGKILL: see /proc/{record.pid}/stack")
    except ProcessLookupError:
        pass
    finally:
        os.close(descriptor)


def spawn(argv, record_path, log_path, *, environment, outer=None, inner=None, keep=()):
    """Starts a daemon and returns its record.

    Two forks: `outer` runs in the first child (there it may enter namespaces), `inner` in the second, just
    before the program; the first child then ends, so that the daemon belongs to the init of its pid
    namespace. `keep` are descriptors that the program inherits.
    """
    told_reader, told_writer = os.pipe()  # the pid, or what went wrong
    go_reader, go_writer = os.pipe()      # closed without a byte: do not start
    first = os.fork()
    if first == 0:
        os.close(told_reader)
        os.close(go_writer)
        try:
            os.setsid()
            if outer:
                outer()
            second = os.fork()
            if second == 0:
                if os.read(go_reader, 1):
                    _become(argv, log_path, environment, inner, keep)
                os._exit(1)
            os.write(told_writer, str(second).encode())
        except OSError as error:
            os.write(told_writer, f"error {error}".encode())
        finally:
            os._exit(0)
    os.close(told_writer)
    os.close(go_reader)
    try:
        text = os.read(told_reader, 4096).decode()
        os.waitpid(first, 0)
        if not text.isdigit():
            reason = text.removeprefix("error ") or "it ended at once"
            raise Problem(f"cannot start {pathlib.Path(argv[0]).name}: {reason}")
        record = Record.of(int(text))
        record.write(record_path)
        os.write(go_writer, b"g")
        return record
    finally:
        os.close(told_reader)
        os.close(go_writer)


def _become(argv, log_path, environment, inner, keep):
    try:
        log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        for descriptor in keep:
            os.set_inheritable(descriptor, True)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir("/")
        if inner:
            inner()
        os.execve(argv[0], [str(word) for word in argv], environment)
    except BaseException as error:  # nothing above us may run in this copy of the process
        os.write(2, f"cannot run {argv[0]}: {error}\n".encode())
        os._exit(127)
