"""Images as users build them: a Containerfile, built by buildah. No registry is asked for its base, which is
Debian out of packages (mmdebstrap), and a stage that compiles is replaced by programs that are there already.

  archive = container.image("docker.io/local/tool:1", pathlib.Path("Containerfile"), {"/made/tool": pathlib.Path("build/tool")})
  images.load(programs, socket, archive)

Needs root. The base and the layers are kept in the cache, and the last image: who asks for the same one again
gets it at once.
"""

import hashlib
import pathlib
import shutil
import subprocess
import tempfile

from .paths import cache_root, locked
from .problem import Problem
from .toolchain import last_line

SUITE = "bookworm"
BASE = "localhost/debian"
TAG = "12-slim"
# As Debian's own slim image has it.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


def _folder():
    return cache_root().parent / "image"


def _must(what, command, seconds=900):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=seconds)
    if done.returncode != 0:
        raise Problem(f"{what}: {last_line(done.stderr)}")
    return done.stdout.strip()


def _buildah(what, *arguments):
    # vfs and chroot need no more of the kernel than root has inside of a container, too.
    folder = _folder()
    storage = ["--root", folder / "storage", "--runroot", folder / "run", "--storage-driver", "vfs"]
    return _must(what, ["buildah", *storage, *arguments])


def _ensure_base(say):
    folder = _folder()
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / f"debian-{SUITE}.tar"
    if not archive.exists():
        say(f"making a Debian ({SUITE}) for images out of its packages (once, a minute)")
        unfinished = archive.with_suffix(".part.tar")
        options = [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
        _must("mmdebstrap", ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", *options, SUITE, unfinished])
        unfinished.rename(archive)
    names = _buildah("buildah images", "images", "--format", "{{.Name}}:{{.Tag}}")
    if f"{BASE}:{TAG}" in names.split():
        return
    container = _buildah("buildah from", "from", "scratch")
    _buildah("buildah add", "add", "--quiet", container, archive, "/")
    _buildah("buildah commit", "commit", "--quiet", "--rm", container, f"{BASE}:{TAG}")


def _lock(say):
    return locked(_folder().with_suffix(".lock"), wait=lambda: say("waiting for another process that makes an image"))


def ensure_base(say=lambda line: None):
    with _lock(say):
        _ensure_base(say)


def image(reference, containerfile, built, say=lambda line: None):
    """The bytes of an archive. `built`: what the stage `build` would have made, as a path in it to a path here."""
    with _lock(say):
        digest = hashlib.sha256(f"{reference} {SUITE} {LEFT_OUT}".encode() + containerfile.read_bytes())
        for place, source in sorted(built.items()):
            digest.update(place.encode() + source.read_bytes())
        archive = _folder() / f"{digest.hexdigest()[:16]}.image.tar"
        if archive.exists():
            return archive.read_bytes()
        _ensure_base(say)
        with tempfile.TemporaryDirectory() as stage:
            for place, source in built.items():
                target = pathlib.Path(stage + place)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
                _must("strip", ["strip", target])
            with tempfile.TemporaryDirectory() as nothing:  # the rest comes from that stage
                _buildah("buildah build", "build", "--isolation", "chroot", "--layers", "--pull-never",
                         "--build-arg", f"DEBIAN={BASE}", "--build-context", f"build={stage}",
                         "--file", containerfile, "--tag", reference, nothing)
        for old in _folder().glob("*.image.tar"):
            old.unlink()
        unfinished = archive.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        _buildah("buildah push", "push", "--quiet", reference, f"docker-archive:{unfinished}:{reference}")
        unfinished.rename(archive)
        _buildah("buildah rmi", "rmi", "--prune")  # what the last build of another program has left
        return archive.read_bytes()
