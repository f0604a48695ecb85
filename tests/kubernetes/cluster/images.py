"""Container images out of files of this machine, without a registry and without an image builder.

An image is one layer, a tar of the files, with three JSON documents round it (the OCI image layout); an
archive of that is what containerd imports. Pods say `imagePullPolicy: Never`.

  archive = image("docker.io/local/tool:1", {"/bin/tool": pathlib.Path("build/tool")}, entrypoint=["/bin/tool"])
  load(programs, socket, archive)
"""

import hashlib
import io
import json
import os
import pathlib
import platform
import re
import subprocess
import tarfile

from .problem import Problem
from .toolchain import last_line

REFERENCE = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+:[A-Za-z0-9._-]{1,128}")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # Go's names
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
SEARCH_PATH = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
LAYER = "application/vnd.oci.image.layer.v1.tar"


def _add(archive, name, data=b"", **fields):
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    entry.mode = 0o755
    for field, value in fields.items():
        setattr(entry, field, value)
    archive.addfile(entry, io.BytesIO(data))


def _layer(files, links):
    folders = {str(parent) for name in [*files, *links] for parent in pathlib.PurePosixPath(name).parents} | {"/tmp"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in sorted(folders - {"/"}):
            _add(archive, name.lstrip("/"), type=tarfile.DIRTYPE, mode=0o1777 if name == "/tmp" else 0o755)
        for name, source in sorted(files.items()):
            data = source if isinstance(source, bytes) else pathlib.Path(source).read_bytes()
            _add(archive, name.lstrip("/"), data)
        for name, target in sorted(links.items()):
            _add(archive, name.lstrip("/"), type=tarfile.SYMTYPE, linkname=target)
    return buffer.getvalue()


def image(reference, files, *, links=None, entrypoint=(), command=()):
    """The bytes of an archive. `files`: path in the image to a path here, or to the bytes; all are executable.
    A pod's `command` takes the place of the entrypoint, its `args` that of the command."""
    if not REFERENCE.fullmatch(reference):
        raise Problem(f"'{reference}' is no full image name: write it like docker.io/local/NAME:1")
    for name in [*files, *(links or {})]:
        if not name.startswith("/") or ".." in name.split("/"):
            raise Problem(f"'{name}' is no place in an image: begin with / and leave out ..")
    layer = _layer(files, links or {})
    blobs = {}

    def put(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def document(body):
        return json.dumps(body, sort_keys=True).encode()

    configuration = put(document({
        "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux",
        "config": {"Entrypoint": list(entrypoint), "Cmd": list(command), "Env": [SEARCH_PATH]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }), CONFIG)
    manifest = put(document({"schemaVersion": 2, "mediaType": MANIFEST, "config": configuration,
                             "layers": [put(layer, LAYER)]}), MANIFEST)
    manifest["annotations"] = {"io.containerd.image.name": reference, "org.opencontainers.image.ref.name": reference}
    blobs["oci-layout"] = document({"imageLayoutVersion": "1.0.0"})
    blobs["index.json"] = document({"schemaVersion": 2, "manifests": [manifest]})
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in blobs.items():
            _add(archive, name, data, mode=0o644)
    return buffer.getvalue()


def load(programs, socket, archive):
    """Imports it where the kubelet looks: namespace k8s.io."""
    done = subprocess.run([programs["ctr"], "--address", socket, "--namespace", "k8s.io", "images", "import", "-"],
                          input=archive, capture_output=True)
    if done.returncode != 0:
        raise Problem(f"containerd does not take the image: {last_line(done.stderr.decode(errors='replace'))}")


def pause(programs, reference):
    return image(reference, {"/pause": programs["pause"]}, entrypoint=["/pause"])


def busybox_files(programs):
    """(files, links) of a shell with its usual commands."""
    program = programs["busybox"]
    applets = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    return {"/bin/busybox": program}, {f"/bin/{name}": "busybox" for name in applets if name != "busybox"}


def python_files():
    """Debian's python3 under its own paths, without tests and what only developers need."""
    program = pathlib.Path("/usr/bin/python3").resolve()
    library = pathlib.Path("/usr/lib", program.name)
    left_out = {"__pycache__", "test", "tests", "idlelib", "lib2to3", "pydoc_data", "tkinter", "ensurepip", "distutils"}
    files = {str(path): path for path in library.rglob("*")
             if path.is_file() and not left_out & set(path.parts) and not path.parent.name.startswith("config-")}
    files["/usr/bin/python3"] = program
    for path in [program, *(library / "lib-dynload").glob("*.so")]:
        files.update(libraries(path))
    return files


def libraries(program):
    """The shared libraries of a program, its loader among them, each under the path that it is looked for."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True)
    if "not a dynamic executable" in done.stdout + done.stderr or "statically linked" in done.stdout:
        return {}
    if done.returncode != 0 or "not found" in done.stdout:
        raise Problem(f"cannot tell the libraries of {program}: {last_line(done.stdout + done.stderr)}")
    paths = re.findall(r"^\s*(?:\S+ => )?(/\S+) \(0x", done.stdout, re.MULTILINE)
    return {os.path.normpath(path): pathlib.Path(path) for path in paths}
