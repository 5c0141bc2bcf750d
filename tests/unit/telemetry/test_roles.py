from __future__ import annotations

from flatout.telemetry.processes import Known, roles_of

PY = b"/usr/bin/python3\0"
TRAIN = PY + b"train.py\0--epochs\x003\0"
SPAWN = PY + b"-c\0from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)\0--multiprocessing-fork\0"
FORKSERVER = PY + b"-c\0from multiprocessing.forkserver import main; main(3, 4)\0"
TRACKER = PY + b"-c\0from multiprocessing.resource_tracker import main;main(3)\0"


def test_forked_and_spawned_workers_beside_helpers():
    tree = {
        1: Known(0, TRAIN),
        2: Known(1, TRAIN),
        3: Known(1, SPAWN),
        4: Known(1, TRACKER),
        5: Known(1, PY + b"-m\0torch._inductor.compile_worker\0"),
        6: Known(1, b"tensorboard\0--logdir\0runs\0"),
    }

    assert roles_of(tree, 1) == {1: "main", 2: "worker", 3: "worker", 4: "other", 5: "other", 6: "other"}


def test_forkserver_is_no_worker_but_what_it_forks_is():
    tree = {1: Known(0, TRAIN), 2: Known(1, FORKSERVER), 3: Known(2, FORKSERVER), 4: Known(2, FORKSERVER)}

    assert roles_of(tree, 1) == {1: "main", 2: "other", 3: "worker", 4: "worker"}


def test_ranks_under_torchrun_are_mains_and_the_launcher_is_not():
    rank = PY + b"-u\0train.py\0"
    tree = {
        1: Known(0, PY + b"/env/bin/torchrun\0--nproc-per-node\x002\0train.py\0"),
        2: Known(1, rank),
        3: Known(1, rank),
    }
    tree |= {4: Known(2, rank), 5: Known(3, rank)}

    assert roles_of(tree, 1) == {1: "other", 2: "main", 3: "main", 4: "worker", 5: "worker"}


def test_spawned_ranks_with_workers_of_their_own_are_mains():
    tree = {1: Known(0, TRAIN), 2: Known(1, SPAWN), 3: Known(2, SPAWN)}

    assert roles_of(tree, 1) == {1: "main", 2: "main", 3: "worker"}


def test_a_script_under_a_shell_is_the_main():
    tree = {1: Known(0, b"bash\0run.sh\0"), 2: Known(1, TRAIN), 3: Known(2, TRAIN)}

    assert roles_of(tree, 1) == {1: "other", 2: "main", 3: "worker"}


def test_an_argument_that_names_a_launcher_makes_none():
    tree = {1: Known(0, PY + b"-u\0-X\0dev\0train.py\0--backend\0accelerate\0")}

    assert roles_of(tree, 1) == {1: "main"}


def test_a_root_that_is_no_python_stays_the_main_when_alone():
    assert roles_of({7: Known(1, b"./train\0")}, 7) == {7: "main"}
