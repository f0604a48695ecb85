"""What `mq_type="divisi"` plans: whom a worker waits for, and which secret it gets. With a stand-in for the few
names of DI-engine that this needs; the real one is in test_ding_mq.py."""

import sys

import pytest

from compat_tools import environment, run, write

STAND_IN = {
    "ding/__init__.py": "",
    "ding/utils/__init__.py": "",
    "ding/utils/registry_factory.py": """
        class Registry(dict):
            def register(self, name, kind):
                self[name] = kind
        MQ_REGISTRY = Registry(nng=object)
        """,
    "ding/framework/__init__.py": "",
    "ding/framework/message_queue/__init__.py": "",
    "ding/framework/message_queue/mq.py": "class MQ:\n    pass\n",
    "ding/framework/parallel.py": """
        class Parallel:
            @classmethod
            def runner(cls, n_parallel_workers, mq_type="nng", protocol="ipc", ports=None, attach_to=None,
                       address=None, topology="mesh"):
                given = dict(n=n_parallel_workers, protocol=protocol, ports=ports, attach_to=attach_to, address=address)
                return lambda main: main(cls._nng_args_parser(**given))

            @classmethod
            def _nng_args_parser(cls, n, protocol, ports, attach_to, address):
                names = [f"ipc:///tmp/w{i}.ipc" if protocol == "ipc" else f"tcp://{address}:{ports + i}" for i in range(n)]
                return [dict(listen_to=name, attach_to=names[:i] + list(attach_to or []), startup_interval=1)
                        for i, name in enumerate(names)]
        """,
    "ding/entry/__init__.py": "",
    # A mesh of ranks, by the same variables.
    "ding/entry/cli_parsers.py": """
        import os
        def k8s(platform_spec=None, parallel_workers=1, ports=50515, **arguments):
            assert arguments.get("mq_type") == "nng"
            hosts, rank = os.environ["DI_NODES"].split(","), int(os.environ["DI_RANK"])
            lower = [f"tcp://{host}:{ports + i}" for host in hosts[:rank] for i in range(parallel_workers)]
            return dict(arguments, address=hosts[rank], ports=ports, parallel_workers=parallel_workers,
                        attach_to=",".join(lower))
        PLATFORM_PARSERS = {"k8s": k8s}
        """,
}

PLAN = """
import json, sys
import ding.entry.cli_parsers
import divisi.ding_mq
from ding.framework.parallel import Parallel

def show(workers):
    print(json.dumps([[worker["peers"], worker["secret"].hex(), worker["mq_type"]] for worker in workers]))

"""


@pytest.fixture
def plan(tmp_path):
    """plan(program, **environment): what was planned, and what was said."""
    for name, text in STAND_IN.items():
        write(tmp_path, text, name)

    def plan(program, **variables):
        script = write(tmp_path, PLAN + program)
        ended = run([sys.executable, script], env=environment(tmp_path, **variables), cwd=tmp_path)
        return eval(ended.stdout), ended.stderr

    return plan


@pytest.mark.parametrize("rank, peers", [(0, 5), (1, 5), (2, 5)])
def test_workers_wait_for_those_of_every_other_rank(plan, rank, peers):
    planned, _ = plan(
        """
given = ding.entry.cli_parsers.PLATFORM_PARSERS["k8s"](None, mq_type="divisi", parallel_workers=2)
Parallel.runner(given["parallel_workers"], given["mq_type"], protocol="tcp", ports=given["ports"],
                address=given["address"], attach_to=[a for a in given["attach_to"].split(",") if a])(show)
""",
        DI_NODES="h0,h1,h2",
        DI_RANK=str(rank),
    )
    assert [worker[0] for worker in planned] == [peers, peers]
    assert [worker[2] for worker in planned] == ["divisi", "divisi"]


def test_workers_of_one_launcher_on_ipc_get_a_secret_of_their_own(plan):
    planned, said = plan('Parallel.runner(2, "divisi")(show)\n')
    (first, second) = [worker[1] for worker in planned]
    assert first == second and len(first) == 64
    assert plan('Parallel.runner(2, "divisi")(show)\n')[0][0][1] != first
    assert said == ""


def test_tcp_without_a_secret_is_told_of_once(plan):
    program = 'Parallel.runner(2, "divisi", protocol="tcp", ports=1, address="h")(show)\n'
    planned, said = plan(program)
    assert [worker[1] for worker in planned] == ["", ""]
    assert said.count("without a secret") == 1 and "DIVISI_SECRET_FILE=secret.txt" in said


def test_a_secret_comes_from_the_runner_or_from_the_file(plan, tmp_path):
    (tmp_path / "secret").write_text(" of the file \n")
    (tmp_path / "secret").chmod(0o600)
    program = 'Parallel.runner(2, "divisi", protocol="tcp", ports=1, address="h"%s)(show)\n'
    planned, said = plan(program % "", DIVISI_SECRET_FILE=str(tmp_path / "secret"))
    assert ([bytes.fromhex(worker[1]) for worker in planned], said) == ([b"of the file"] * 2, "")
    planned, said = plan(program % ', secret="given"', DIVISI_SECRET_FILE=str(tmp_path / "secret"))
    assert ([bytes.fromhex(worker[1]) for worker in planned], said) == ([b"given"] * 2, "")
