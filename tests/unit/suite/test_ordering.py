"""The order in which tests begin, and what shares a process."""

from pathlib import Path

from ...ordering import _DEAREST, _OWN_SERVERS, rank_test, share_process

ROOT = Path(__file__).parents[3]


def test_the_dearest_files_begin_first_and_the_others_stay_shuffled():
    shuffled = ["tests/unit/b.py::t", "tests/browser/x.py::t", "tests/unit/a.py::t", "tests/job/test_health.py::t"]

    ordered = sorted(shuffled, key=rank_test)

    assert ordered == [shuffled[3], shuffled[1], shuffled[0], shuffled[2]]


def test_each_name_of_the_order_is_there():
    assert [name for name in (*_DEAREST, *_OWN_SERVERS) if not (ROOT / name).exists()] == []


def test_training_shares_a_process_and_every_other_file_has_its_own():
    training = ["tests/job/test_lora.py::t", "tests/job/test_health.py::t"]
    others = [
        "tests/job/test_main_job.py::t",
        "tests/job/test_on_ray.py::t",
        "tests/unit/a.py::t",
        "tests/job/b/c.py::t",
    ]

    assert {share_process(name) for name in training} == {"tests/job"}
    assert [share_process(name) for name in others] == [name.removesuffix("::t") for name in others]
