"""The node: containerd, kubelet and kube-proxy in the cell."""

import json
import pathlib
import subprocess

from . import cgroups, images
from .network import DOMAIN, NODE_ADDRESS, POD_RANGE, write_cni

NAME = "node"
PAUSE = "docker.io/local/pause:1"
READY_SECONDS = 90  # 10 to 15 on an idle machine

# restrict_oom_score_adj: without CAP_SYS_RESOURCE the kernel refuses to lower the score of a sandbox.
CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{networks}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = "{runc}"
"""


class Node:
    def __init__(self, daemons, control_plane, instance):
        self.daemons = daemons
        self.control_plane = control_plane
        self.instance = instance
        self.folder = daemons.folder
        self.socket = self.folder / "containerd.sock"

    def start(self):
        self._start_containerd()
        images.load(self.daemons.programs, self.socket, images.pause(self.daemons.programs, PAUSE))
        self._start_kubelet()
        self._start_proxy()

    def wait(self):
        self.daemons.wait("the node to be ready", self._ready, READY_SECONDS, "kubelet")

    def _ready(self):
        node = self.control_plane.api.get(f"/api/v1/nodes/{NAME}") or {}
        conditions = node.get("status", {}).get("conditions", [])
        return (any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
                and not node["spec"].get("taints"))  # taken away a moment later; until then no pod is scheduled

    def _start_containerd(self):
        write_cni(self.folder / "cni")
        configuration = self.folder / "containerd.toml"
        configuration.write_text(CONTAINERD.format(
            socket=self.socket, pause=PAUSE, plugins=self.daemons.programs.cni, networks=self.folder / "cni",
            runc=self.daemons.programs["runc"]))
        self.daemons.start("containerd", "--config", configuration)
        question = [self.daemons.programs["ctr"], "--address", self.socket, "version"]
        self.daemons.wait("containerd to answer", lambda: self.socket.exists() and not subprocess.run(
            question, stdin=subprocess.DEVNULL, capture_output=True).returncode, READY_SECONDS, "containerd")

    def _start_kubelet(self):
        pki = self.control_plane.authority
        pki.issue("kubelet", f"system:node:{NAME}", ["system:nodes"], [f"IP:{NODE_ADDRESS}", f"DNS:{NAME}"])
        resolv = self.folder / "resolv.conf"  # what pods with dnsPolicy Default see: nothing beyond the cluster
        resolv.write_text(f"nameserver {NODE_ADDRESS}\n")
        configuration = self._configuration("kubelet", {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "tlsCertFile": str(pki.folder / "kubelet.crt"), "tlsPrivateKeyFile": str(pki.folder / "kubelet.key"),
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": str(pki.folder / "ca.crt")}},
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs", "cgroupRoot": cgroups.create(self.instance), "enforceNodeAllocatable": [],
            "failSwapOn": False, "oomScoreAdj": 0,
            "clusterDNS": [NODE_ADDRESS], "clusterDomain": DOMAIN, "resolvConf": str(resolv),
            # A developer's full disk is no reason to evict a test's pods.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {name: "0%" for name in ("nodefs.available", "nodefs.inodesFree", "imagefs.available")},
            "syncFrequency": "5s",
        })
        kubeconfig = self.control_plane.own_kubeconfig(f"system:node:{NAME}", ["system:nodes"])
        self.daemons.start("kubelet", "--config", configuration, "--kubeconfig", kubeconfig,
                           "--hostname-override", NAME, "--node-ip", NODE_ADDRESS)

    def _start_proxy(self):
        kubeconfig = self.control_plane.own_kubeconfig("system:kube-proxy")
        configuration = self._configuration("kube-proxy", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
            "mode": "iptables", "clusterCIDR": POD_RANGE, "hostnameOverride": NAME, "oomScoreAdj": 0,
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            # Of the whole machine: left as they are.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
            "iptables": {"minSyncPeriod": "0s"},  # a new service works at once
        })
        self.daemons.start("kube-proxy", "--config", configuration)

    def _configuration(self, name, body):
        path = pathlib.Path(self.folder, f"{name}.yaml")
        path.write_text(json.dumps(body, indent=1) + "\n")  # JSON is YAML
        return path
