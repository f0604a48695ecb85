"""Who does what in a job, and where the others are.

With labels (learner, collector, evaluator, replay; several in one process are fine) they say it. Without,
node 0 learns, node 1 evaluates and the others collect; in a job of two, node 1 does both. A job without a
node for the replay has it in the learner's process.
"""

ROLES = {"learner", "collector", "evaluator", "replay"}


def roles_here(router):
    """The roles of this process."""
    if not router.is_active:
        return {"learner", "collector", "evaluator", "replay"}
    by_label = router.labels & ROLES
    if by_label:
        return by_label
    if router.node_id == 0:
        return {"learner"}
    if router.node_id == 1:
        return {"evaluator", "collector"} if router.n_parallel_workers == 2 else {"evaluator"}
    return {"collector"}


def replay_node(router):
    """The node that holds the replay, as far as this one knows; None for itself or while there is none."""
    labels = {peer["node_id"]: set(peer["labels"]) for peer in router.peers()}
    for wanted in ("replay", "learner"):
        if wanted in roles_here(router):
            return None
        found = sorted(node for node, of in labels.items() if wanted in of)
        if found:
            return found[0]
    return 0 if 0 in labels and not labels[0] & ROLES else None
