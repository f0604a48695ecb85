"""etcd, kube-apiserver, and on request kube-controller-manager and kube-scheduler.

On the host they listen on free ports of 127.0.0.1. In a cell they have the usual ports, and a forwarder makes
the API server reachable on 127.0.0.1 of the host.
"""

import secrets
import socket
import sys

from .api import Api, kubeconfig
from .certificates import Authority
from .network import NODE_ADDRESS, SERVICE_API, SERVICE_RANGE
from .paths import HERE
from .problem import Problem

READY_SECONDS = 60  # 4 to 6 on an idle machine

# Of every request for a new pod one line, when it has come in.
AUDIT_POLICY = """{"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
 "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
 "rules": [{"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
           {"level": "None"}]}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class ControlPlane:
    """After start(): .server, .api, .authority, .kubeconfig."""

    def __init__(self, daemons, service_accounts, audit=False):
        self.daemons = daemons
        self.folder = daemons.folder
        # Without a controller manager nobody would make the accounts that this admission asks for.
        self.service_accounts = service_accounts
        self.in_cell = daemons.cell is not None
        self.audit_log = self.folder / "audit.log" if audit else None

    def start(self):
        self._make_credentials()
        if self.in_cell:
            self._start_etcd(2379, 2380)
            self.port = self._start_forwarder(6443)
            self._start_api_server("0.0.0.0", 6443, 2379)
        else:
            etcd, peers, self.port = (free_port() for _ in range(3))
            self._start_etcd(etcd, peers)
            self._start_api_server("127.0.0.1", self.port, etcd)
        self.api = Api(self.port, self.authority)
        self.server = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = kubeconfig(self.folder / "kubeconfig", self.server, self.authority, "admin")
        self.daemons.wait("the API server to be ready", self.api.ready, READY_SECONDS, "kube-apiserver")

    def own_kubeconfig(self, user, groups=()):
        """For a component, which dials the server from where it runs."""
        self.authority.issue(user, user, groups)
        server = f"https://{NODE_ADDRESS}:6443" if self.in_cell else self.server
        return kubeconfig(self.folder / f"{user.replace(':', '-')}.kubeconfig", server, self.authority, user)

    def start_controllers(self):
        pki = self.authority.folder
        user = "system:kube-controller-manager"
        self.daemons.start(
            "kube-controller-manager", f"--kubeconfig={self.own_kubeconfig(user)}", "--leader-elect=false",
            "--use-service-account-credentials=true", f"--service-account-private-key-file={pki / 'accounts.key'}",
            f"--root-ca-file={pki / 'ca.crt'}", f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}", "--secure-port=0")
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.daemons.wait("the default service account", lambda: self.api.get(account), READY_SECONDS,
                          "kube-controller-manager")

    def start_scheduler(self):
        self.daemons.start("kube-scheduler", f"--kubeconfig={self.own_kubeconfig('system:kube-scheduler')}",
                           "--leader-elect=false", "--secure-port=0")

    def _make_credentials(self):
        self.authority = Authority.create(self.folder / "pki")
        names = ["IP:127.0.0.1", f"IP:{NODE_ADDRESS}", f"IP:{SERVICE_API}", "DNS:localhost", "DNS:kubernetes",
                 "DNS:kubernetes.default", "DNS:kubernetes.default.svc", "DNS:kubernetes.default.svc.cluster.local"]
        self.authority.issue("kube-apiserver", "kube-apiserver", ["system:masters"], names)
        self.authority.issue("admin", "admin", ["system:masters"])
        token = secrets.token_hex(24)
        (self.folder / "token").write_text(token + "\n")
        (self.folder / "tokens.csv").write_text(f"{token},admin-token,admin-token,system:masters\n")

    def _start_etcd(self, port, peers):
        clients, members = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peers}"
        self.daemons.start(
            "etcd", f"--data-dir={self.folder / 'etcd'}", "--unsafe-no-fsync", f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}", f"--listen-peer-urls={members}", "--log-level=warn",
            f"--initial-advertise-peer-urls={members}", f"--initial-cluster=default={members}")

    def _start_api_server(self, address, port, etcd):
        pki = self.authority.folder
        arguments = [
            f"--etcd-servers=http://127.0.0.1:{etcd}", f"--bind-address={address}", f"--secure-port={port}",
            f"--tls-cert-file={pki / 'kube-apiserver.crt'}", f"--tls-private-key-file={pki / 'kube-apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}", f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'accounts.pub'}",
            f"--service-account-signing-key-file={pki / 'accounts.key'}",
            f"--service-cluster-ip-range={SERVICE_RANGE}", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
            "--enable-admission-plugins=NodeRestriction", "--profiling=false",
            "--feature-gates=WatchList=true"]  # lists as streams: what newer releases do by default
        if self.in_cell:
            arguments += [
                f"--advertise-address={NODE_ADDRESS}", "--kubelet-preferred-address-types=InternalIP",
                f"--kubelet-certificate-authority={pki / 'ca.crt'}",
                f"--kubelet-client-certificate={pki / 'kube-apiserver.crt'}",
                f"--kubelet-client-key={pki / 'kube-apiserver.key'}"]
        else:  # 127.0.0.1 is no address for an endpoint
            arguments += ["--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none"]
        if self.audit_log:
            policy = self.folder / "audit-policy.json"
            policy.write_text(AUDIT_POLICY)
            arguments += [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"]
        if not self.service_accounts:
            arguments.append("--disable-admission-plugins=ServiceAccount")
        self.daemons.start("kube-apiserver", *arguments)

    def _start_forwarder(self, port):
        with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
            self.daemons.start("forwarder", HERE / "cluster" / "forwarder.py", listener.fileno(), "127.0.0.1", port,
                               program=sys.executable, keep=[listener.fileno()])
            return listener.getsockname()[1]


def port_was_taken(problem):
    """Between finding a free port and using it, somebody else may."""
    return isinstance(problem, Problem) and "address already in use" in str(problem)
