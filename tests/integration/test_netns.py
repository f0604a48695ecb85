"""The three servers of the cluster guide (A130), each in a network namespace of its own.

A has 192.168.0.1; B and C dial it. The servers are joined by a bridge in a fourth namespace, so nothing
of the host's own network is touched. Needs root. DIVISI_BUILD names the build to test (default:
build/release of this checkout).
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = REPOSITORY / os.environ.get("DIVISI_BUILD", "build/release")
DEADLINE = 60  # seconds; only a hang ever waits for it
PORT = 50515
ADDRESSES = {0: "192.168.0.1", 1: "192.168.0.2", 2: "192.168.0.3"}
GATEWAY = "192.168.0.254"

# B and C greet; A answers a round when it has heard both; after some rounds it ends the meeting. What
# B says to A would reach C as well, if the two heard each other.
PACKAGE = r"""
#include <divisi/divisi.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <set>
#include <string>

using divisi::only_remote;
using divisi::task;

std::string list(const std::set<int>& nodes) {
  std::string text;
  for (const int node : nodes) text += (text.empty() ? "" : ",") + std::to_string(node);
  return text;
}

int meet() {
  constexpr int kRounds = 20;
  const auto running = task.start();
  divisi::Parallel& router = task.router();
  const int me = router.node_id();
  std::set<int> heard;
  std::set<int> linked;
  std::map<int, std::set<int>> rounds;
  std::promise<void> ended;

  const auto note = [&](int from) {
    heard.insert(from);
    for (const auto& peer : router.peers()) linked.insert(peer.node_id);
  };
  task.on("hello", [&](int from, int round) {
    note(from);
    if (me != 0) return;
    rounds[round].insert(from);
    if (rounds[round] != std::set{1, 2}) return;
    if (round == kRounds) {
      task.emit("end");
    } else {
      task.emit("round", only_remote, me, round + 1);
    }
  });
  task.on("round", [&](int from, int round) {
    note(from);
    task.emit("hello", only_remote, me, round);
  });
  task.once("end", [&] { ended.set_value(); });
  router.ready();
  if (me != 0) task.emit("hello", only_remote, me, 0);

  if (ended.get_future().wait_for(std::chrono::seconds(50)) != std::future_status::ready) return 1;
  std::printf("node %d heard %s, is linked with %s\n", me, list(heard).c_str(), list(linked).c_str());
  std::fflush(stdout);
  return 0;
}
DIVISI_MAIN(meet)
"""


def ip(*arguments):
    done = subprocess.run(["ip", *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode != 0:
        raise AssertionError(f"ip {' '.join(map(str, arguments))}: {done.stderr.strip()}")


class Server:
    """The guide's command on one of the servers."""

    def __init__(self, namespace, directory, node):
        attach = ["--attach-to", f"{ADDRESSES[0]}:{PORT}"] if node else []
        self.out = tempfile.TemporaryFile(dir=directory)
        self.err = tempfile.TemporaryFile(dir=directory)
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, BUILD / "bin" / "ditask", "--package", directory / "package",
             "--main", "meeting.meet", "--parallel-workers", "1", "--protocol", "tcp", "--ports", str(PORT),
             "--node-ids", str(node), *attach],
            env={name: value for name, value in os.environ.items()
                 if not name.startswith(("DI_", "SLURM", "DITASK", "DIVISI"))},
            stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err, start_new_session=True)
        self.namespace = namespace
        self.node = node

    def text(self):
        texts = []
        for stream in (self.out, self.err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return "\n".join(texts)

    def wait_until_listening(self):
        """On its own address, which it has to find by itself."""
        end = time.monotonic() + DEADLINE
        wanted = f"listen on tcp://{ADDRESSES[self.node]}:{PORT}"
        while wanted not in self.text():  # it may have ended by now: the meeting is short
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"does not {wanted}:\n{self.text()}")
            time.sleep(0.01)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.out.close()
        self.err.close()


class ThreeServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="divisi_netns_"))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        (cls.directory / "package").mkdir()
        (cls.directory / "meeting.cc").write_text(PACKAGE)
        subprocess.run(["g++", "-std=c++20", "-shared", "-fPIC", f"-I{REPOSITORY}/include",
                        cls.directory / "meeting.cc", "-o", cls.directory / "package" / "meeting.so",
                        f"-L{BUILD}/lib", "-ldivisi"], check=True)

        run = cls.directory.name.removeprefix("divisi_netns_")
        switch = cls.namespace(f"divisi-{run}-switch")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "address", "add", f"{GATEWAY}/24", "dev", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        cls.namespaces = {}
        for node, address in ADDRESSES.items():
            server = cls.namespaces[node] = cls.namespace(f"divisi-{run}-{node}")
            port = f"port{node}"
            ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", server)
            ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", server, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", server, "link", "set", "eth0", "up")
            # A node finds its own address by asking which one it would use to leave the network.
            ip("-n", server, "route", "add", "default", "via", GATEWAY)

    @classmethod
    def namespace(cls, name):
        ip("netns", "add", name)
        cls.addClassCleanup(ip, "netns", "delete", name)
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def meet(self, *order):
        servers = []
        for node in order:
            servers.append(Server(self.namespaces[node], self.directory, node))
            self.addCleanup(servers[-1].close)
            servers[-1].wait_until_listening()
        said = {}
        for server in servers:
            code = server.process.wait(DEADLINE)
            self.assertEqual(code, 0, server.text())
            said[server.node] = re.search(r"heard (\S*), is linked with (\S*)", server.text()).groups()
        self.assertEqual(said, {0: ("1,2", "1,2"), 1: ("0", "0"), 2: ("0", "0")})

    def test_A130_the_dialled_server_starts_first(self):
        self.meet(0, 1, 2)

    def test_A130_the_dialled_server_starts_last(self):
        self.meet(2, 1, 0)

    def test_A130_the_dialled_server_starts_in_between(self):
        self.meet(1, 0, 2)


class OneServer(unittest.TestCase):
    """Where a server listens that nobody told, by what its network has."""

    def said(self, *commands):
        name = f"divisi-{os.getpid()}-alone"
        ip("netns", "add", name)
        self.addCleanup(ip, "netns", "delete", name)
        ip("-n", name, "link", "set", "lo", "up")
        for command in commands:
            ip("-n", name, *command.split())
        run = subprocess.run(["ip", "netns", "exec", name, BUILD / "bin" / "ditask", "--dry-run", "--main", "a.main",
                              "--protocol", "tcp"], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout, run.stderr

    def test_without_a_route_it_is_the_first_address_of_an_interface(self):
        out, err = self.said("link add eth0 type veth peer name eth1", "address add 192.0.2.7/24 dev eth0",
                             "link set eth0 up", "link set eth1 up")
        self.assertIn(f"tcp://192.0.2.7:{PORT}", out)
        self.assertNotIn("no network interface is up", err)

    def test_without_an_interface_it_is_loopback_with_a_warning(self):
        out, err = self.said()
        self.assertIn(f"tcp://127.0.0.1:{PORT}", out)
        self.assertEqual((out + err).count("no network interface is up"), 1)


if __name__ == "__main__":
    unittest.main()
