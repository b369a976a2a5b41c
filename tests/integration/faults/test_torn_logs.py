"""What a killed writer, a power loss or a bad disk leave in a log takes nothing else with it."""

import pytest

from agent_layer.infra.objects.filesystem import open_objects
from agent_layer.recorder import Recorder
from agent_layer.recorder.frames import frame
from agent_layer.recorder.logfile import LogFile
from agent_layer.schema.codec import encode
from agent_layer.schema.ids import new_id
from agent_layer.schema.reward import Reward
from agent_layer.store.store import Store


def reward(name: str) -> Reward:
    return Reward(trajectory_id="r.0-0", reward_id=name, run="r", at=1.0, name=name, score=1.0)


@pytest.fixture
def stored(settings, redis):
    """``stored()``: what was recorded, as a reader finds it."""

    def read() -> list[str]:
        store = Store(settings, redis, open_objects(settings))
        return [one.name for one in store.get("r.0-0").rewards] if store.query(run="r").items else []

    return read


@pytest.fixture
def write_log(settings):
    """``write_log(*names, then=b"")``: a complete log of rewards, with something after the last of them."""

    def write(*names: str, then: bytes = b""):
        recorder = Recorder(settings)
        name = recorder.append(*map(reward, names))
        recorder.close()
        path = settings.log_dir / f"{name}.log"
        path.write_bytes(path.read_bytes() + then)
        return path

    return write


@pytest.mark.parametrize("num_kept", [1, 7, 8, 9, 30])
def test_a_record_that_a_killed_writer_began_is_cut_off(write_log, stored, ship_here, num_kept):
    path = write_log("a", "b", then=frame(encode(reward("c")))[:num_kept])

    assert ship_here() == 1
    assert stored() == ["a", "b"]
    assert not path.exists()


def test_zeros_that_a_power_loss_left_are_cut_off(write_log, stored, ship_here):
    path = write_log("a", "b", then=bytes(4096))

    assert ship_here() == 1
    assert stored() == ["a", "b"]
    assert not path.exists()


def test_a_log_that_is_damaged_in_the_middle_gives_what_is_whole_and_is_kept_aside(write_log, stored, ship_here):
    damaged = bytearray(frame(encode(reward("b"))))
    damaged[-1] ^= 1
    path = write_log("a", then=bytes(damaged) + frame(encode(reward("c"))))

    assert ship_here() == 1
    assert stored() == ["a"]
    assert path.with_suffix(".corrupt").exists()
    assert ship_here() == 0


def test_a_log_that_was_mended_is_shipped_again_and_nothing_is_there_twice(write_log, stored, ship_here, redis, keys):
    damaged = bytearray(frame(encode(reward("b"))))
    damaged[-1] ^= 1
    path = write_log("a", then=bytes(damaged))
    ship_here()
    aside = path.with_suffix(".corrupt")
    damaged[-1] ^= 1
    path.write_bytes(aside.read_bytes()[: -len(damaged)] + damaged)
    aside.unlink()

    assert ship_here() == 1
    assert stored() == ["a", "b"]
    assert redis.hlen(keys.segments) == 1


def test_what_lies_beside_the_logs_is_left_alone(settings, ship_here, write_log, stored):
    write_log("a")
    for name in ("notes-of-mine.log", "shipper.log", "x.open"):
        (settings.log_dir / name).write_text("not a log")

    assert ship_here() == 1
    assert stored() == ["a"]
    assert len([*settings.log_dir.glob("notes*"), *settings.log_dir.glob("x*")]) == 2


def test_the_open_log_of_a_dead_writer_is_adopted_by_the_next_shipper(settings, ship_here, stored):
    settings.log_dir.mkdir(parents=True)
    file = LogFile(settings.log_dir, f"{new_id()}-host-1")
    file.write(frame(encode(reward("a"))), 1)
    file.write(frame(encode(reward("b")))[:20], 0)

    assert ship_here() == 0
    file.close()
    assert ship_here() == 1
    assert stored() == ["a"]
