"""The queue under its old name, without DI-engine: listen, publish, recv."""

import subprocess
import sys

PUBLISHER = """
import sys, threading
from ding.framework.message_queue.nng import NNGMQ

queue = NNGMQ(listen_to=sys.argv[1])
threading.Thread(target=queue.listen, daemon=True).start()
enough = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), enough.set()), daemon=True).start()
while not enough.wait(0.1):
    queue.publish("t", b"data")
queue.stop()
"""

RECEIVER = """
import sys
from ding.framework.message_queue import NNGMQ

queue = NNGMQ(listen_to=sys.argv[1], attach_to=[sys.argv[2]])
queue.listen()
topic, data = queue.recv()
print(repr((topic, data)))
queue.stop()
"""


def test_A062_a_queue_that_is_attached_receives_what_the_other_publishes(tmp_path, free_ports):
    first, second = (f"tcp://127.0.0.1:{port}" for port in free_ports(2))
    for name, source in (("publisher.py", PUBLISHER), ("receiver.py", RECEIVER)):
        (tmp_path / name).write_text(source)
    run = [sys.executable, "-m", "divisi.compat"]
    publisher = subprocess.Popen(
        [*run, str(tmp_path / "publisher.py"), first], stdin=subprocess.PIPE
    )
    try:
        out = subprocess.run(
            [*run, str(tmp_path / "receiver.py"), second, first], stdout=subprocess.PIPE, text=True,
            timeout=90, check=True,
        ).stdout
        assert out.strip() == repr(("t", b"data"))
        publisher.communicate(timeout=90)
        assert publisher.returncode == 0
    finally:
        publisher.kill()
        publisher.wait()
