"""The ``ditask`` command, and what it makes of a scheduler's environment."""

import json
import os
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional

from .errors import UsageError


def program(name: str = "ditask") -> str:
    """The path of a program that belongs to this package: ``ditask`` or ``divisi-report``."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (
        os.path.join(here, "_bin", name),  # in a wheel
        os.path.join(here, "..", "..", "bin", name),  # in a build tree
    ):
        if os.access(path, os.X_OK):
            return os.path.normpath(path)
    raise UsageError(f"the {name} program is missing beside {here}: install divisi again")


def main(argv: Optional[List[str]] = None) -> None:
    """Becomes ``ditask``, with workers of this Python. Does not return."""
    path = program()
    os.environ.setdefault("DIVISI_PYTHON", sys.executable)
    arguments = sys.argv[1:] if argv is None else argv
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, ["ditask", *arguments])


def report_main() -> None:
    """Becomes ``divisi-report``, which runs the program of a trial in its pod. Does not return."""
    path = program("divisi-report")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(path, ["divisi-report", *sys.argv[1:]])


def _parser(platform: str) -> Callable[..., Dict[str, Any]]:
    def parse(platform_spec: Any = None, **kwargs: Any) -> Dict[str, Any]:
        command = [program(), "--main", "module.main", "--platform", platform, "--dry-run"]
        if platform_spec is not None:
            text = platform_spec if isinstance(platform_spec, str) else json.dumps(platform_spec)
            command += ["--platform-spec", text]
        for key, value in kwargs.items():
            if value is None or key == "mq_type":
                continue
            if isinstance(value, (list, tuple, set)):
                value = ",".join(map(str, value))
            command += ["--" + key.replace("_", "-"), str(value)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise UsageError(done.stderr.strip())
        plan = json.loads(done.stdout)
        first = plan["workers"][0]
        address, _, port = first["listen"].rpartition("://")[2].rpartition(":")
        return dict(
            kwargs,
            address=address,
            ports=int(port),
            node_ids=first["node_id"],
            parallel_workers=plan["parallel_workers"],
            attach_to=",".join(first["attach_to"]),
            topology=plan["topology"],
            labels=",".join(sorted(first["labels"])),
        )

    parse.__name__ = f"{platform}_parser"
    parse.__doc__ = f"""What ``ditask --platform {platform}`` derives from the environment.

    Takes ditask's flags as keywords; the result has address, ports (the first worker's),
    node_ids (the first worker's), parallel_workers, attach_to, topology and labels.
    """
    return parse


PLATFORM_PARSERS: Dict[str, Callable[..., Dict[str, Any]]] = {
    "slurm": _parser("slurm"),
    "k8s": _parser("k8s"),
}
"""By name of the platform."""


if __name__ == "__main__":
    main()
