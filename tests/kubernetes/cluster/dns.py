"""CoreDNS, in the cell: names of services and pods.

It runs beside the kubelet and not as a pod: its names and answers are the same, and it is there seconds
earlier.
"""

import socket

from .network import DOMAIN, NODE_ADDRESS

USER = "coredns"
READY_SECONDS = 60
COREFILE = """.:53 {{
  bind {address}
  errors
  ready {address}:8181
  kubernetes {domain} in-addr.arpa {{
    kubeconfig {kubeconfig}
    ttl 5
  }}
  cache 5
}}
"""
RBAC = "rbac.authorization.k8s.io"
ROLE = {
    "apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": USER},
    "rules": [{"apiGroups": [group], "resources": resources, "verbs": ["list", "watch"]} for group, resources in (
        ("", ["endpoints", "services", "pods", "namespaces"]), ("discovery.k8s.io", ["endpointslices"]))],
}
BINDING = {
    "apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": USER},
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": USER},
    "subjects": [{"apiGroup": RBAC, "kind": "User", "name": USER}],
}


def start(daemons, control_plane):
    for kind, body in (("clusterroles", ROLE), ("clusterrolebindings", BINDING)):
        daemons.wait(f"the API server to take the {kind} of CoreDNS",
                     lambda kind=kind, body=body: control_plane.api.create(f"/apis/{RBAC}/v1/{kind}", body),
                     10, "kube-apiserver")
    corefile = daemons.folder / "Corefile"
    kubeconfig = control_plane.own_kubeconfig(USER)
    corefile.write_text(COREFILE.format(address=NODE_ADDRESS, domain=DOMAIN, kubeconfig=kubeconfig))
    daemons.start("coredns", "-conf", corefile)


def wait(daemons):
    daemons.wait("CoreDNS to answer", lambda: daemons.cell.call(_answers), READY_SECONDS, "coredns")


def _answers():
    """Inside the cell: does the name of the API server have an address?"""
    name = b"".join(bytes([len(part)]) + part for part in f"kubernetes.default.svc.{DOMAIN}".encode().split(b"."))
    header = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"  # one question, recursion desired
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(1)
        asking.connect((NODE_ADDRESS, 53))
        asking.send(header + name + b"\x00\x00\x01\x00\x01")  # type A, class IN
        answer = asking.recv(512)
    failed, answers = answer[3] & 0x0F, int.from_bytes(answer[6:8], "big")
    return answer[:2] == header[:2] and not failed and answers > 0
