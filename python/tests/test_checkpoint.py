"""Checkpoints, results, and the end of training."""

import os
import pickle

import pytest

from divisi import Error, OnlineRLContext, UsageError
from divisi.middleware import CkptSaver, ddp_termination_checker, final_ctx_saver, load_ckpt, termination_checker


class Policy:
    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


def files(folder):
    return sorted(os.listdir(folder))


def test_A107_a_file_for_each_occasion(task, tmp_path):
    with task.start(ctx=OnlineRLContext()):
        saver = CkptSaver(Policy(), str(tmp_path), train_freq=100)
        ckpt, ctx = tmp_path / "ckpt", task.ctx
        ctx.train_iter, ctx.eval_value = 1, 9.4
        saver(ctx)
        assert files(ckpt) == ["eval.pth.tar"]
        (ckpt / "eval.pth.tar").unlink()
        ctx.train_iter, ctx.eval_value = 100, 1
        saver(ctx)
        assert files(ckpt) == ["iteration_100.pth.tar"]
        task.finish = True
        saver(ctx)
        assert files(ckpt) == ["final.pth.tar", "iteration_100.pth.tar"]


def test_the_folder_is_not_doubled_and_learn_mode_is_what_is_saved(task, tmp_path):
    class Whole:
        learn_mode = Policy(5)

    with task.start(ctx=OnlineRLContext()):
        saver = CkptSaver(Whole(), str(tmp_path / "ckpt"), train_freq=10, save_finish=False)
        saver(task.ctx)  # train_iter 0
        task.finish = True
        task.ctx.train_iter = 9
        saver(task.ctx)
    assert files(tmp_path) == ["ckpt"]
    assert files(tmp_path / "ckpt") == ["iteration_0.pth.tar"]
    assert load_ckpt(None, tmp_path / "ckpt" / "iteration_0.pth.tar") == {"value": 5}


def test_the_latest_of_a_folder_is_loaded(task, tmp_path):
    with task.start(ctx=OnlineRLContext()):
        policy = Policy()
        saver = CkptSaver(policy, str(tmp_path), train_freq=10)
        for value in (10, 20, 30):
            policy.value = task.ctx.train_iter = value
            saver(task.ctx)
        policy.value, task.ctx.eval_value = 99, 1.0  # later, but not the end of training
        saver(task.ctx)
    for i, name in enumerate(["iteration_10", "iteration_20", "iteration_30", "eval"]):
        os.utime(tmp_path / "ckpt" / f"{name}.pth.tar", ns=(i, i))
    loaded = Policy()
    load_ckpt(loaded, tmp_path)
    assert loaded.value == 30


def test_what_is_no_checkpoint_says_so(tmp_path):
    with pytest.raises(Error, match="there is no checkpoint in"):
        load_ckpt(None, tmp_path)
    with pytest.raises(Error, match="could not load .*absent: No such file"):
        load_ckpt(None, tmp_path / "absent")
    (tmp_path / "bad").write_bytes(b"not a pickle")
    with pytest.raises(Error, match="bad is not a checkpoint"):
        load_ckpt(None, tmp_path / "bad")


def test_a_disk_that_is_full_is_one_clear_error_and_the_old_file_stays(run_program, tmp_path):
    program = f"""
import resource
from divisi.middleware import CkptSaver, load_ckpt

class Policy:
    size = 10
    def state_dict(self):
        return b"x" * self.size

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with task.start(ctx=OnlineRLContext(eval_value=1.0)):
    saver = CkptSaver(Policy, {str(tmp_path)!r})
    Policy.state_dict = classmethod(lambda cls: b"x" * cls.size)
    saver(task.ctx)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))  # a write beyond it fails half-way
    Policy.size, task.ctx.eval_value = 1_000_000, 2.0
    try:
        saver(task.ctx)
    except Error as error:
        tell(str(error))
    tell(len(load_ckpt(None, {str(tmp_path)!r})), os.listdir(saver.prefix))
"""
    (text,), rest = run_program(program).ok().results
    assert text == f"could not save {tmp_path}/ckpt/eval.pth.tar: File too large"
    assert rest == [10, ["eval.pth.tar"]]


def test_a_crash_while_saving_leaves_the_old_file(run_program, tmp_path):
    program = f"""
from divisi.middleware import CkptSaver, load_ckpt
class Policy:
    def state_dict(self):
        return "new"
with task.start(ctx=OnlineRLContext(eval_value=1.0)):
    saver = CkptSaver(Policy(), {str(tmp_path)!r})
    saver(task.ctx)
    inner, os.replace = os.replace, lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    Policy.state_dict = lambda self: "never"
    task.ctx.eval_value = 2.0
    saver(task.ctx)
"""
    assert run_program(program).code == -9
    assert load_ckpt(None, tmp_path / "ckpt" / "eval.pth.tar") == "new"


def test_a_folder_that_cannot_be_made_is_one_clear_error(task, tmp_path):
    (tmp_path / "file").write_text("")
    with task.start(), pytest.raises(Error, match="could not make the folder .*file/ckpt: Not a directory"):
        CkptSaver(Policy(), str(tmp_path / "file"))


def test_with_torch_the_file_is_torchs(run_program, tmp_path):
    program = f"""
import torch
from divisi.middleware import CkptSaver, load_ckpt
model = torch.nn.Linear(2, 1)
with task.start(ctx=OnlineRLContext(eval_value=1.0)):
    CkptSaver(model, {str(tmp_path)!r})(task.ctx)
again = torch.nn.Linear(2, 1)
load_ckpt(again, {str(tmp_path)!r})
tell(torch.equal(again.weight, model.weight), sorted(torch.load({str(tmp_path)!r} + "/ckpt/eval.pth.tar")))
"""
    assert run_program(program).ok().results == [[True, ["bias", "weight"]]]


@pytest.mark.parametrize("limit, field", [("max_env_step", "env_step"), ("max_train_iter", "train_iter")])
def test_the_end_is_beyond_the_limit(task, limit, field):
    for checker in (termination_checker, ddp_termination_checker):
        with task.start(ctx=OnlineRLContext()):
            check = checker(**{limit: 10})
            setattr(task.ctx, field, 10)
            check(task.ctx)
            assert not task.finish
            setattr(task.ctx, field, 11)
            check(task.ctx)
            assert task.finish


def test_a_context_without_counters_is_an_error(task):
    with task.start(), pytest.raises(UsageError, match="env_step or train_iter"):
        termination_checker(max_env_step=1)(task.ctx)


def test_all_ranks_finish_in_the_same_iteration(run_program):
    program = """
from divisi.middleware import Barrier, ddp_termination_checker
def main():
    with task.start(ctx=OnlineRLContext()):
        def train(ctx):
            ctx.train_iter += 1 if me() == 0 else 1000  # only rank 0 counts
        task.use(Barrier())  # as learners are in step by what they train together
        task.use(train)
        task.use(ddp_termination_checker(max_train_iter=5, rank=me()))
        task.run()
        tell(me(), task.ctx.total_step)
if __name__ == "__main__":
    Parallel.runner(n_parallel_workers=3)(main)
"""
    assert run_program(program).ok().of_nodes() == {0: 5, 1: 5, 2: 5}


def test_the_result_is_saved_at_the_end(task, tmp_path):
    with task.start(ctx=OnlineRLContext(train_iter=3, env_step=7, last_eval_value=1.5)):
        task.use(final_ctx_saver(str(tmp_path / "exp")))
        task.use(lambda ctx: setattr(task, "finish", ctx.total_step == 1))
        task.use(final_ctx_saver(str(tmp_path / "exp")))
        task.run()
    result = pickle.loads((tmp_path / "exp" / "result.pkl").read_bytes())
    assert result == {
        "total_step": 1, "train_iter": 3, "last_eval_iter": -1, "eval_value": 1.5, "env_step": 7, "env_episode": 0,
    }


def test_torch_is_not_imported(run_program):
    ended = run_program("import divisi.middleware, divisi.writer\ntell('torch' in sys.modules)").ok()
    assert ended.results == [[False]]
