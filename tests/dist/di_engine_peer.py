"""A peer made of DI-engine's own classes, run by an interpreter that has it (scripts/ding_venv).

di_engine_peer.py coordinator CONFIG.py PORT SERVER | collector PORT | learner PORT | master PORT SLAVE_PORT
"""

import json
import pickle
import sys
import time

from foreign_peers import collector, learner


def shorten_pauses(factor):
    """DI-engine waits by sleeping, seconds at a time; what it does in between stays as it is."""
    sleep = time.sleep
    time.sleep = lambda seconds: sleep(seconds / factor)


def say_line(line):
    """In one write: Flask's log goes to the same file from other threads."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_coordinator(config, port, server):
    """What `ding -m dist --module config` and `--module coordinator` call."""
    from ding.config import compile_config_parallel, read_config_with_system
    from ding.entry.dist_entry import dist_launch_coordinator
    from ding.interaction.master import master
    master.get_host_ip = lambda: "127.0.0.1"  # its own needs a route to the Internet
    main, create, system = read_config_with_system(config)
    system.coordinator.operator_server.system_addr = server
    # save_cfg wants yapf, to format a copy that nobody reads.
    compiled = compile_config_parallel(main, create_cfg=create, system_cfg=system, save_cfg=False, platform="k8s",
                                       coordinator_port=port)
    with open("di_engine.pkl", "wb") as file:
        pickle.dump(compiled, file)
    dist_launch_coordinator("di_engine.pkl", 0, port, disable_flask_log=True, enable_total_log=True)


def run_slave(work, port):
    from ding.interaction import Slave, TaskFail

    class Worker(Slave):
        def _process_task(self, task):
            completed, result = work(task)
            say_line(f"task {task['name']}")
            if not completed:
                raise TaskFail(result=result)
            return result

    with Worker("127.0.0.1", port, heartbeat_span=0.2) as worker:
        worker.join()


def run_master(port, slave_port):
    """Everything that a master does with a slave; prints what came of it, a line each."""
    from ding.interaction import Master

    def say(*what):
        say_line(json.dumps(what))

    with Master("127.0.0.1", port, my_address=f"http://127.0.0.1:{port}") as master:
        master.ping()
        with master.new_connection("it", "127.0.0.1", slave_port) as connection:
            say("connected", "it" in master)
            second = master.new_connection("second", "127.0.0.1", slave_port)
            try:
                second.connect()
            except Exception as error:  # the class is made from the code in the answer
                say("second master", type(error).__name__)
            for data in ({"name": "resource"}, {"name": "unheard of"}, {"name": "throw"},
                         {"name": "resource", "limit": float("inf"), "least": [float("-inf"), float("nan")]}):
                task = connection.new_task(data).start().join()
                say(data["name"], task.status.name, task.result)
        say("connected", "it" in master)


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    shorten_pauses(5)
    if role == "coordinator":
        run_coordinator(rest[0], int(rest[1]), rest[2])
    elif role == "master":
        run_master(*map(int, rest))
    else:
        run_slave({"collector": lambda: collector(6), "learner": lambda: learner(3)}[role](), int(rest[0]))
