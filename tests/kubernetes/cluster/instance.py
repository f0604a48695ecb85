"""One instance from up to down. Everything about it is in its state folder."""

import json
import shutil

from . import build, cgroups, dns, network
from .control_plane import ControlPlane, port_was_taken
from .daemons import Daemons, records, stop_all
from .node import Node
from .paths import instances, locked, state_folder, state_root
from .problem import Problem


def _lock(name):
    return state_root() / f"{name}.lock"


def running(name):
    """Whether all of its processes are alive."""
    found = records(state_folder(name))
    return bool(found) and all(record.alive() for record in found.values())


def up(name, *, control_plane_only=False, controllers=False, audit=False, say=lambda line: None):
    """Starts the instance and returns its facts: kubeconfig, server, token, folder."""
    programs = build.ensure(say)
    folder = state_folder(name)
    with locked(_lock(name)):
        if running(name):
            raise Problem(f"'{name}' is running already: KUBECONFIG={folder / 'kubeconfig'} "
                          f"(stop it with tests/kubernetes/down --name {name}, or choose another --name)")
        for tries_left in (2, 1, 0):
            _wipe(name)  # a former one that crashed, or our own try
            folder.mkdir(mode=0o700)
            try:
                return _start(name, folder, programs, control_plane_only, controllers, audit, say)
            except Problem as problem:
                _halt(name)  # the folder stays: the error names logs in it
                if not (tries_left and port_was_taken(problem)):
                    raise
            except BaseException:  # interrupted: nobody will read the logs
                _wipe(name)
                raise


def _start(name, folder, programs, control_plane_only, controllers, audit, say):
    daemons = Daemons(folder, programs)
    if not control_plane_only:
        daemons.make_cell()
        network.set_up(daemons.cell)
    plane = ControlPlane(daemons, service_accounts=controllers or not control_plane_only,
                         audit=audit)
    say("starting etcd and the API server")
    plane.start()
    if not control_plane_only:
        say("starting the node")
        node = Node(daemons, plane, name)
        node.start()
        dns.start(daemons, plane)
        plane.start_scheduler()
    if controllers or not control_plane_only:
        plane.start_controllers()
    if not control_plane_only:
        node.wait()
        dns.wait(daemons)
    facts = {"name": name, "folder": str(folder), "kubeconfig": str(plane.kubeconfig), "server": plane.server,
             "token": (folder / "token").read_text().strip(), "kubectl": str(programs["kubectl"]),
             "audit": str(plane.audit_log) if audit else None}
    (folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def facts(name):
    path = state_folder(name) / "facts.json"
    if not running(name) or not path.exists():
        raise Problem(f"no instance '{name}' is running: start it with tests/kubernetes/up --name {name}")
    return json.loads(path.read_text())


def down(name):
    """Ends it, whatever is left of it. False if there was nothing."""
    with locked(_lock(name), wait=lambda: None, remove=True):
        existed = state_folder(name).exists() or bool(cgroups.folders(name))
        _wipe(name)
    return existed


def down_all():
    return [name for name in instances() if down(name)]


def _halt(name):
    stop_all(state_folder(name))
    if cgroups.folders(name):
        cgroups.remove(name)


def _wipe(name):
    """In this order: a living process could write into the folder, and holds its cgroup."""
    _halt(name)
    folder = state_folder(name)
    if folder.exists():
        shutil.rmtree(folder)
