"""ditask in the pods of a DIJob that grows and shrinks: real processes, a di-server that is a fake."""

import pathlib
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from ditask_support import PACKAGES, DitaskTest, free_port  # noqa: E402
from fake_di_server import FakeDiServer  # noqa: E402

HOSTS = {rank: f"127.0.0.{rank + 1}" for rank in range(6)}


class DiJob(DitaskTest):
    def setUp(self):
        super().setUp()
        self.server = FakeDiServer()
        self.addCleanup(self.server.close)
        self.port = free_port(1, HOSTS.values())

    def list_ranks(self, *ranks):
        self.server.set_members({rank: HOSTS[rank] for rank in ranks})

    def pod(self, rank, nodes, *arguments, **variables):
        """The command a pod runs: no flag says who it is."""
        return self.start(
            "--package", PACKAGES, "--main", "members.follow", "--ports", self.port, *arguments,
            env={
                "DI_NODES": ",".join(HOSTS[i] for i in range(nodes)), "DI_RANK": str(rank),
                "DI_JOB_ID": "lab/train", "DI_SERVER_URL": self.server.url, **variables,
            },
        )

    def sees(self, pod, *peers):
        """Waits until the last line says that these are the peers, none of them lost."""
        wanted = f"peers {','.join(map(str, peers))}."
        pod.wait_until_last_line(wanted)

    def test_a_mesh_that_grows_from_3_to_6_shrinks_to_2_and_fills_a_hole(self):
        self.list_ranks(0, 1, 2)
        pods = {rank: self.pod(rank, 3) for rank in range(3)}
        for rank, pod in pods.items():
            self.sees(pod, *(other for other in range(3) if other != rank))

        self.list_ranks(*range(6))
        pods.update({rank: self.pod(rank, 6) for rank in range(3, 6)})
        for rank, pod in pods.items():
            self.sees(pod, *(other for other in range(6) if other != rank))

        self.list_ranks(0, 4)  # a deleted pod is out of the list before its process ends
        for rank in (1, 3):
            pods[rank].signal(signal.SIGTERM)
        for rank in (2, 5):
            pods[rank].signal(signal.SIGKILL)
        self.sees(pods[0], 4)
        self.sees(pods[4], 0)

        self.list_ranks(0, 2, 4)
        pods[2] = self.pod(2, 6)  # DI_NODES names 1, 3 and 5 too, which are nowhere
        self.sees(pods[2], 0, 4)
        self.sees(pods[0], 2, 4)
        self.sees(pods[4], 0, 2)
        for rank in (0, 2, 4):
            self.assertIsNone(pods[rank].process.poll(), "it never ended")
            out = pods[rank].text(pods[rank].out)
            self.assertEqual(out.count("begins"), 1, "nor began again")

    def test_main_does_not_wait_for_a_pod_that_does_not_exist(self):
        self.list_ranks(0, 2)
        first, third = self.pod(0, 3), self.pod(2, 3)
        self.sees(first, 2)
        self.sees(third, 0)

    def test_a_replaced_pod_is_linked_again_without_a_restart_of_the_others(self):
        self.list_ranks(0, 1)
        first, second = self.pod(0, 2), self.pod(1, 2)
        self.sees(second, 0)
        first.signal(signal.SIGTERM)  # says goodbye, so that nobody would dial it again
        first.process.wait(60)
        self.list_ranks(1)
        self.sees(second)
        again = self.pod(0, 2)
        self.list_ranks(0, 1)
        self.sees(again, 1)
        self.sees(second, 0)

    def test_without_a_di_server_the_nodes_of_di_nodes_find_each_other(self):
        pods = [self.pod(rank, 2, DI_SERVER_URL="http://127.0.0.1:1") for rank in range(2)]
        self.sees(pods[0], 1)
        self.sees(pods[1], 0)

    def test_membership_can_be_switched_off(self):
        self.list_ranks(0)
        pods = [self.pod(rank, 2, DIVISI_MEMBERSHIP="off") for rank in range(2)]
        self.sees(pods[0], 1)
        self.sees(pods[1], 0)

    def test_progress_reaches_the_di_server_with_the_secret_of_the_job(self):
        secret = self.directory / "secret"
        secret.write_text("0123abcd\n")
        secret.chmod(0o600)
        self.list_ranks(0)
        pod = self.pod(0, 1, DIVISI_TEST_PROGRESS="1", DIVISI_SECRET_FILE=str(secret))
        pod.wait_until_printed("begins")
        pod.signal(signal.SIGTERM)  # what is left goes before the end
        pod.process.wait(60)
        told = {"progress": {}, "ranks": {"0": {}}}
        for path, authorization, body in self.server.wait_for_posts(lambda posts: posts):
            self.assertEqual(path, "/v2alpha1/job/lab/train/profilings")
            self.assertEqual(authorization, "Bearer 0123abcd")
            told["progress"].update(body.get("progress", {}))
            told["ranks"]["0"].update(body.get("ranks", {}).get("0", {}))
        self.assertEqual(told["progress"], {"env_steps_per_second": 120.5, "return": 17.25})
        self.assertEqual(
            told["ranks"]["0"],
            {"env_steps_per_second": 120.5, "return": 17.25, "eta_seconds": 60.5, "loss": 0.5},
        )


if __name__ == "__main__":
    unittest.main()
