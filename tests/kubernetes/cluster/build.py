"""The programs, made once: Kubernetes, etcd and CoreDNS from the Go module proxy, pause from pause.c,
containerd, runc, CNI plugins and busybox out of Debian's packages.

They land in the user's cache, in a folder named by what they are made from. The folder appears whole or
not at all; whoever comes while it is being made waits.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

from . import toolchain
from .paths import HERE, cache_root, locked
from .problem import Problem

SOURCES = ("go/kubernetes/go.mod", "go/kubernetes/go.sum", "go/kubernetes/main.go",
           "go/coredns/go.mod", "go/coredns/go.sum", "go/coredns/main.go", "pause.c")
LINKS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
# Taken out of their packages and not installed: an install would start a containerd of the machine, and
# on a machine with Docker it would remove Docker's.
DEBIAN = {
    "containerd": {"usr/bin/containerd": "bin", "usr/bin/containerd-shim-runc-v2": "bin", "usr/bin/ctr": "bin"},
    "runc": {"usr/sbin/runc": "bin"},
    "containernetworking-plugins": {f"usr/lib/cni/{name}": "cni"
                                    for name in ("ptp", "host-local", "loopback", "portmap")},
    "busybox-static": {"bin/busybox": "bin"},
}


class Programs:
    """Paths of the finished programs: programs["kubectl"], programs.cni."""

    def __init__(self, folder):
        self.folder = folder
        self.cni = folder / "cni"
        self.path = f"{folder / 'bin'}:/usr/sbin:/usr/bin:/sbin:/bin"  # for programs that start programs

    def __getitem__(self, name):
        return self.folder / "bin" / name


def kubernetes_version():
    text = (HERE / "go/kubernetes/go.mod").read_text()
    return re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", text, re.MULTILINE)[1]


def key():
    digest = hashlib.sha256(repr(DEBIAN).encode())
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    return f"{kubernetes_version()}-{digest.hexdigest()[:12]}"


def ensure(say=lambda line: None):
    """The programs, built if they are not there yet."""
    folder = cache_root() / key()
    if folder.is_dir():
        return Programs(folder)
    lock = folder.with_name(folder.name + ".lock")
    with locked(lock, wait=lambda: say("another process is building: waiting for it"), remove=True):
        if not folder.is_dir():
            _build(folder, say)
    return Programs(folder)


def _build(folder, say):
    started = time.monotonic()
    say(f"building Kubernetes {kubernetes_version()} (once; 10 to 30 minutes on two cores) into {folder}")
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as work:
        made = pathlib.Path(work, "made")
        (made / "bin").mkdir(parents=True)
        (made / "cni").mkdir()
        for package, files in DEBIAN.items():
            _unpack(package, files, pathlib.Path(work), made, say)
        _run(["gcc", "-Os", "-static", "-s", "-o", made / "bin/pause", HERE / "pause.c"], "compile pause.c")
        go = toolchain.find(say)
        version = kubernetes_version()
        major, minor = version.lstrip("v").split(".")[:2]
        stamp = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        flags = [f"-X {package}.{name}={value}" for name, value in stamp.items()
                 for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")]
        _compile(go, HERE / "go/kubernetes", made / "bin/kubernetes", flags, say)
        for link in LINKS:
            (made / "bin" / link).symlink_to("kubernetes")
        _compile(go, HERE / "go/coredns", made / "bin/coredns", [], say)
        made.rename(folder)
    say(f"built in {time.monotonic() - started:.0f} s")


def _run(command, what, **options):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Problem(f"cannot {what}: {toolchain.last_line(done.stderr)}")


def _unpack(package, files, work, made, say):
    if not shutil.which("apt-get"):
        raise Problem(f"cannot fetch {package}: no apt-get here; this needs Debian or one of its children")
    say(f"fetching {package}")
    arguments = ["apt-get", "-qq", "download", package]
    try:
        _run(arguments, f"download {package}", cwd=work)
    except Problem:  # a new machine has no package lists
        _run(["apt-get", "-qq", "update"], "fetch Debian's package lists")
        _run(arguments, f"download {package} with apt-get", cwd=work)
    (archive,) = work.glob(f"{package}_*.deb")
    root = work / package
    _run(["dpkg-deb", "-x", archive, root], f"unpack {archive.name}")
    for source, target in files.items():
        shutil.copy(root / source, made / target)


def _compile(go, module, output, flags, say):
    """Static and stripped, no path of this machine inside."""
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off",
                   "GOFLAGS": "-buildvcs=false"}

    def run(stage, *arguments):
        return _follow([go, *arguments], f"build {output.name}", lambda count, line: say(stage(count, line)),
                       cwd=module, env=environment)

    say(f"{output.name}: fetching its Go modules")
    total = len(run(lambda count, line: f"{output.name}: {line}", "list", "-deps", ".").split())
    say(f"{output.name}: compiling")
    run(lambda count, line: f"{output.name}: {count} of {total} packages, {line}",
        "build", "-v", "-trimpath", "-ldflags", " ".join(["-s", "-w", *flags]), "-o", output, ".")


def _follow(command, what, report, **options):
    """Runs a go command, reports its progress every few seconds, and returns its output."""
    packages, reported, complaints = 0, 0.0, []
    with tempfile.TemporaryFile("w+") as output, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            for line in map(str.strip, process.stderr):
                if re.fullmatch(r"[\w.~/-]+", line):  # -v: a package that is being compiled
                    packages += 1
                elif not line.startswith("go: downloading"):
                    complaints.append(line)
                if time.monotonic() - reported > 5:
                    reported = time.monotonic()
                    report(packages, line[:90])
        except BaseException:  # interrupted: what it builds will be thrown away
            process.kill()
            raise
        if process.wait() != 0:
            raise Problem(f"go cannot {what}: {complaints[-1] if complaints else 'no message'}")
        output.seek(0)
        return output.read()
