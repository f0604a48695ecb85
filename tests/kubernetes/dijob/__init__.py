"""What the tests of DIJobs share: the programs, jobs as values, and a kubelet that obeys."""
