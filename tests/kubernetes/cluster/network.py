"""Addresses of a node, and its network inside the cell.

Every cell has a network namespace without a way out, so all instances use the same addresses. Pods are
joined to the node one by one (CNI plugin ptp): what goes from pod to pod is routed, so kube-proxy's rules
see it in both directions, with or without the kernel's bridge filter.
"""

import json
import pathlib
import subprocess

from .problem import Problem
from .toolchain import last_line

NODE_ADDRESS = "10.0.0.1"
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_API = "10.96.0.1"  # the first of the range is always the API server's
DOMAIN = "cluster.local"


def _inside(cell, *command):
    """The namespace is entered by path, not by name: a name would be a file of the host."""
    done = subprocess.run(["nsenter", f"--net=/proc/{cell.record.pid}/ns/net", *command], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise Problem(f"cannot set up the node's network: {' '.join(command)}: {last_line(done.stderr)}")


def set_up(cell):
    """The node's address is on one end of a veth pair: the dummy device is missing from some kernels."""
    for command in ("link set lo up", "link add node0 type veth peer name node0-end",
                    f"address add {NODE_ADDRESS}/24 dev node0", "link set node0 up", "link set node0-end up",
                    # Addresses of services lie nowhere; a packet must have a route before it is redirected.
                    "route add default dev node0"):
        _inside(cell, "ip", *command.split())
    _inside(cell, "sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1")


def write_cni(folder):
    """The one network that pods join."""
    folder.mkdir()
    address = {"type": "host-local", "ranges": [[{"subnet": POD_RANGE}]], "routes": [{"dst": "0.0.0.0/0"}]}
    pathlib.Path(folder, "10-pods.conflist").write_text(json.dumps({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{"type": "ptp", "ipMasq": False, "ipam": address},
                    {"type": "portmap", "capabilities": {"portMappings": True}}],
    }))
