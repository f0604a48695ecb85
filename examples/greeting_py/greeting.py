"""Two processes greet each other: node 1 says "Hi", node 0 prints it. The twin of examples/greeting.

    python examples/greeting_py/greeting.py
    ditask --package examples/greeting_py --main greeting.main --parallel-workers 2 --topology mesh
"""

from divisi import Parallel, task


def main() -> None:
    with task.start():
        node = task.router.node_id
        if node == 0:
            task.on("greeting", lambda message: print(f"node 0 heard: {message}"))
            # Nothing is lost if the greeting was faster than this line: events without a listener
            # are kept for the first one.
            task.wait_for("done", timeout=10)
        else:
            for i in range(1, 4):
                task.emit("greeting", f"Hi {i} from node {node}", only_remote=True)
            print(f"node {node} said Hi three times")
            task.emit("done", only_remote=True)


if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=2, log_level="warning")(main)
