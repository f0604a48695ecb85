"""A real single-node Kubernetes for tests: tests/kubernetes/README.md says what and how."""
