"""Compiled kernels are found again by what they say, and never wrongly."""

import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import pytest
from numba import typeof

import nearcast
from nearcast.kernels import cache, turns
from nearcast.kernels.fingerprint import _read, fingerprint

MODULE = '''
import numpy as np
from nearcast.kernels import kernel

SCALE = 3
TABLE = np.array([1, 2, 3])

@kernel
def helper(x):
    """Help."""
    return x * SCALE

@kernel
def total(values):
    """Add up."""
    sum = 0
    for value in values:
        sum += helper(value) + TABLE[0]
    return sum

@kernel
def other(values):
    return values.size
'''

RUN = """
import sys, numpy as np
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
event.register("numba:compile", Listener())
sys.path.insert(0, sys.argv[1])
import written
print(written.total(np.arange(4)), ",".join(compiled))
"""


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The kernels of the module, compiled."""
    place = tmp_path_factory.mktemp("kernels") / "kept"
    place.mkdir(mode=0o700)
    answer, compiled, said = run(place.parent / "one", place)
    assert (answer, sorted(compiled)) == (22, ["helper", "total"])
    assert said.count("compiling kernels") == 1
    assert str(place) in said
    return place


@pytest.fixture
def kept(compiled, tmp_path):
    """A copy of them, which a test may damage."""
    return Path(shutil.copytree(compiled, tmp_path / "kept"))


def run(folder, kept, source=MODULE):
    """Run the module in a process of its own; return its answer, and the names of what was compiled."""
    folder.mkdir(exist_ok=True)
    (folder / "written.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(folder)],
        env=os.environ | {"NEARCAST_CACHE_DIR": str(kept)},
        capture_output=True,
        text=True,
        check=True,
    )
    answer, _, compiled = done.stdout.rstrip("\n").partition(" ")
    return int(answer), [name for name in compiled.split(",") if name], done.stderr


def test_another_clone_finds_the_kernels(tmp_path, kept):
    later = MODULE.replace('"""Add up."""', '"""Add all up."""\n    # with a comment').replace(
        "SCALE = 3", "\n\nSCALE = 3"
    )
    assert run(tmp_path / "two", kept, later) == (22, [], "")


@pytest.mark.parametrize(
    ("old", "new", "answer"),
    [
        ("SCALE = 3", "SCALE = 4", 28),
        ("[1, 2, 3]", "[2, 2, 3]", 26),
        ("x * SCALE", "x + SCALE", 22),
        ("sum = 0", "sum = 1", 23),
    ],
)
def test_what_a_kernel_depends_on_compiles_it_anew(tmp_path, kept, old, new, answer):
    found, compiled, _ = run(tmp_path / "one", kept, MODULE.replace(old, new))
    assert found == answer
    assert "total" in compiled


def test_a_damaged_file_is_a_miss(tmp_path, kept):
    for number, file in enumerate(sorted(kept.glob("*.kernel"))):
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2] if number else whole[:-1] + b"!")
    answer, compiled, _ = run(tmp_path / "one", kept)
    assert (answer, sorted(compiled)) == (22, ["helper", "total"])
    for file in kept.glob("*.kernel"):
        file.write_bytes(b"")
    assert run(tmp_path / "one", kept)[0] == 22
    assert run(tmp_path / "one", kept)[1] == []


def test_a_file_under_the_name_of_another_is_a_miss(tmp_path, kept):
    one, two = sorted(kept.glob("*.kernel"))
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    assert run(tmp_path / "one", kept)[0] == 22


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="about POSIX permissions")
def test_a_directory_that_others_may_write_to_is_not_used(tmp_path, monkeypatch):
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    monkeypatch.setenv("NEARCAST_CACHE_DIR", str(place))
    assert cache.directory.__wrapped__() is None
    place.chmod(0o700)
    assert cache.directory.__wrapped__() == place
    monkeypatch.delenv("NEARCAST_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    assert cache.directory.__wrapped__().parent == tmp_path


def test_old_files_go(tmp_path, monkeypatch):
    for number in range(4):
        file = tmp_path / f"{number}.kernel"
        file.write_bytes(bytes(100))
        os.utime(file, (time.time() - number,) * 2)
    os.utime(tmp_path / "1.kernel", (0, 0))
    monkeypatch.setattr(cache.config, "KERNEL_CACHE_BYTES", 250)
    cache._prune.__wrapped__(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.kernel", "2.kernel"]


def test_types_of_one_name_are_told_apart():
    first, second = namedtuple("Pair", "a b"), namedtuple("Pair", "b a")
    names = {cache._type_name(typeof(pair(1, 2.0))) for pair in (first, second)}
    assert len(names) == 2


def test_the_choice_of_a_covering_index_is_visible():
    """What is compiled for an index depends on the kernels of the index."""
    from nearcast.covering import kd_tree

    reached, waiting = set(), [kd_tree.KDTree.kernels.step.py_func]
    while waiting:
        function = waiting.pop()
        if function not in reached:
            reached.add(function)
            waiting += _read(function)[1]
    assert kd_tree._find.py_func in reached


def test_all_kernels_have_fingerprints_quickly():
    kernels = set()
    for module in walk_packages(nearcast.__path__, "nearcast."):
        if "daemon" not in module.name and "__main__" not in module.name:
            values = vars(import_module(module.name)).values()
            kernels |= {value.py_func for value in values if hasattr(value, "py_func")}
    started = time.process_time()
    prints = {fingerprint(function) for function in kernels}
    assert len(kernels) > 300
    assert len(prints) > 0.9 * len(kernels)
    assert time.process_time() - started < 2


def test_the_hooks_of_numba_are_those_that_we_use():
    """A new Numba that changes its private hooks would compile every time, without a word."""
    from nearcast.kernels.sets import has

    assert isinstance(has._cache, cache.KernelCache)
    has(np.array([1, 2, 3], np.int32), 0, 3, 2)
    fresh = nearcast.kernels.kernel(has.py_func)
    fresh(np.array([1, 2, 3], np.int32), 0, 3, 2)
    assert sum(fresh.stats.cache_hits.values()) == 1
    assert Path(fresh._cache.cache_path).is_dir()


TOGETHER = """
import os, pathlib, sys, time, numpy as np
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, e): compiled.append(e.data["dispatcher"].py_func.__name__)
    def on_end(self, e): pass
event.register("numba:compile", Listener())
sys.path.insert(0, sys.argv[1])
import written
meeting = pathlib.Path(sys.argv[1]) / "meeting"
meeting.mkdir(exist_ok=True)
(meeting / str(os.getpid())).touch()
while len(list(meeting.iterdir())) < 3:
    time.sleep(0.001)
print(written.total(np.arange(4)), ",".join(compiled))
"""


def test_processes_at_the_same_time_compile_a_kernel_once(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o700)
    (tmp_path / "written.py").write_text(MODULE)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", TOGETHER, tmp_path],
            env=os.environ | {"NEARCAST_CACHE_DIR": str(kept)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    said = [one.communicate(timeout=120)[0].split() for one in running]
    assert [words[0] for words in said] == ["22"] * 3
    compiled = [name for words in said for each in words[1:] for name in each.split(",")]
    assert sorted(compiled) == ["helper", "total"]


def test_nobody_waits_for_ever(tmp_path, monkeypatch):
    """A process that has the lock and never compiles does not stop others."""
    name = "0" * 40 + ".kernel"
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib; from nearcast.kernels import turns\n"
            f"print(turns.take(pathlib.Path(sys.argv[1]), {name!r}), flush=True); sys.stdin.read()",
            tmp_path,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout.readline() == "False\n"
    monkeypatch.setattr("nearcast.config.KERNEL_WAIT_S", 0.2)
    started = time.monotonic()
    assert turns.take(tmp_path, name)
    assert 0.2 <= time.monotonic() - started < 30
    assert not turns.take(tmp_path, "1" * 40 + ".kernel")
    monkeypatch.setattr("nearcast.config.KERNEL_WAIT_S", 60)
    holder.communicate("")
    assert not turns.take(tmp_path, name)  # free again at its end
