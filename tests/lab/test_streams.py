import subprocess
import sys

from enginecore_lab.workloads import Streams


def drawn(streams: Streams, name: str, replicate: int = 0) -> list[int]:
    numbers: list[int] = streams.generator(name, replicate).integers(1 << 62, size=4).tolist()
    return numbers


def test_a_stream_is_the_same_whenever_it_is_asked_for():
    streams = Streams(3)
    first = drawn(streams, "arrivals")
    drawn(streams, "lengths")
    assert drawn(streams, "arrivals") == first == drawn(Streams(3), "arrivals")


def test_seeds_names_places_and_replicates_are_told_apart():
    all_of_them = [
        drawn(streams, name, replicate)
        for streams in (Streams(1), Streams(11), Streams(1).below("part"), Streams(1).below("part").below("part"))
        for name in ("arrivals", "lengths", "")
        for replicate in (0, 1, 11)
    ]
    assert len({tuple(numbers) for numbers in all_of_them}) == 36
    assert drawn(Streams(1), "1") != drawn(Streams(11), "")


def test_other_processes_draw_the_same():
    code = (
        "from enginecore_lab.workloads import Streams;"
        "print(Streams(3).generator('arrivals', 1).integers(1 << 62, size=4).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == str(drawn(Streams(3), "arrivals", 1))
