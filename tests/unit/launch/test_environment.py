"""What is kept of the machine and the environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from flatout.launch.environment import git_commit, machine_facts, speed_variables


def test_only_variables_that_change_the_speed_are_kept() -> None:
    environ = {
        "OMP_NUM_THREADS": "4",
        "MKL_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_P2P_DISABLE": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TORCHDYNAMO_DISABLE": "1",
        "HOME": "/h",
        "AWS_SECRET_ACCESS_KEY": "s3cret",
        "TORCH_HUB_TOKEN": "s3cret",
        "WANDB_API_KEY": "s3cret",
    }

    kept = speed_variables(environ)

    assert set(kept) == set(list(environ)[:6])
    assert "s3cret" not in str(kept)


def test_the_machine_is_described_as_this_process_may_use_it() -> None:
    facts = machine_facts()

    assert facts["cpus_allowed"] == len(os.sched_getaffinity(0))
    assert isinstance(facts["memory_bytes"], int) and facts["memory_bytes"] > 2**20
    assert facts["kernel"] == os.uname().release


def _git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    return subprocess.run(
        ["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_commit_is_that_of_git_on_a_branch_packed_detached_and_in_a_worktree(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    (repo / "sub").mkdir(parents=True)
    _git(repo, "init", "-q")
    assert git_commit(repo) is None
    _git(repo, "commit", "-q", "--allow-empty", "-m", "x")
    commit = _git(repo, "rev-parse", "HEAD")

    assert git_commit(repo / "sub") == commit
    _git(repo, "pack-refs", "--all")
    assert git_commit(repo) == commit
    _git(repo, "worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    assert git_commit(tmp_path / "tree") == commit
    _git(repo, "checkout", "-q", "--detach")
    assert git_commit(repo) == commit


def test_no_repository_is_no_commit(tmp_path: Path) -> None:
    assert git_commit(tmp_path) is None
