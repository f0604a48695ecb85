"""di-operator and di-server beside a cluster, as processes of this machine."""

import os
import pathlib
import re
import signal
import subprocess

from harness import HERE, Output, wait_for

BUILD = pathlib.Path(os.environ.get("DIVISI_BUILD", "build/release")).resolve()
DEPLOY = HERE.parent.parent / "deploy"
FIXTURES = HERE / "dijob" / "fixtures"


class Program:
    """with Program("di-operator", instance) as operator: ...; operator.kill(); operator.start()"""

    def __init__(self, name, instance, *arguments):
        self.command = [BUILD / "bin" / name, "--metric-addr=0", *arguments]
        self.environment = {"KUBECONFIG": str(instance.kubeconfig), "HOME": str(instance.folder),
                            "PATH": os.environ["PATH"]}
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
        self.output = Output(self.process.stderr)
        return self

    def end(self, how=signal.SIGTERM):
        """The exit code."""
        self.process.send_signal(how)
        return self.process.wait(60)

    def kill(self):
        return self.end(signal.SIGKILL)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.kill()

    def says(self, pattern):
        """What it has said that matches, once it has."""

        def said():
            assert self.process.poll() is None, self.output.text()
            return re.search(pattern, self.output.text())

        return wait_for(f"{self.command[0].name} to say '{pattern}'", said)


def operator(instance, *arguments):
    return Program("di-operator", instance, "--probe-addr=0", *arguments)


def server(instance, *arguments):
    return Program("di-server", instance, "-s", "127.0.0.1:0", "-p", "127.0.0.1:0", *arguments)


def install_crd(instance):
    """The types alone: the programs run beside the cluster."""
    text = (DEPLOY / "divisi.yaml").read_text()
    crd = next(part for part in text.split("\n---\n") if "kind: CustomResourceDefinition" in part)
    instance.kubectl("apply", "-f", "-", stdin=crd)
    instance.kubectl("wait", "--for=condition=Established", "crd/dijobs.diengine.opendilab.org", "--timeout=60s")
