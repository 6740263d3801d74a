"""A cluster of hosts on this machine: a master and workers on loopback, each worker with a disk of its own.

A worker runs in a mount namespace in which the directory of the driver's files, and the cache of fetched parts, are
empty file systems. So a path means another file on every host, as it does on a real cluster, and what two hosts have in
common is what they reach over the network.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark

from nearcast.kernels.cache import directory as kernels_directory
from nearcast.spark.java import find_java, wrap
from nearcast.storage.cache import cache_directory

SPARK_HOME = Path(pyspark.__file__).parent
# Mounts an empty file system on each directory before --, then becomes the command after it.
APART = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; mkdir -p "$TMPDIR"; exec "$@"'
# Becomes the command as another user, who has kernels of its own in a home on this disk. Python may be in a directory
# that is closed to others ($CLOSED): then that directory has nothing but Python, and is open.
ANOTHER = """
set -e
mkdir -p "$HOME/.cache/nearcast"
cp -r "$KERNELS" "$HOME/.cache/nearcast/kernels"
if [ -n "$CLOSED" ]; then
  mkdir "$TMPDIR/python"
  mount --bind "$PREFIX" "$TMPDIR/python"
  mount -t tmpfs -o mode=755 none "$CLOSED"
  mkdir -p "$PREFIX"
  mount --move "$TMPDIR/python" "$PREFIX"
  rmdir "$TMPDIR/python"
fi
chown -R "$USER_ID:$USER_ID" "$DISK"
exec setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups "$@"
"""
NOBODY = 65534  # the id of the user that every system has


def can_be_apart():
    """Tell whether this user may make mount namespaces."""
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def wait_for(condition, what, processes, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what} took more than {seconds} s"
        assert all(process.poll() is None for process in processes), f"{what}: a process has ended"
        time.sleep(0.1)


def closed_directory():
    """Return the first directory on the way to Python that others may not enter; empty if there is none."""
    home = Path(sys.base_prefix)
    return next((str(each) for each in [*home.parents][::-1] if not each.stat().st_mode & 1), "")


class Hosts:
    """A running cluster; its workers run as *user*, if that is given."""

    def __init__(self, home, count, user=None):
        #: The directory that every host, and the driver, has for itself.
        self.disk = home / "disk"
        self.disk.mkdir()
        (home / "logs").mkdir()
        self._home, self._count, self._user = home, count, user
        self._processes = []
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(wrap(find_java(), home / "java")),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(self.disk / "work"),
            "TMPDIR": str(self.disk / "tmp"),
        }
        (self.disk / "tmp").mkdir()
        (home / "java" / "bin" / "java").chmod(0o755)  # any user may start it

    def start(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"spark://127.0.0.1:{port}"
        self._spark_class("master", ["master.Master", "--host", "127.0.0.1", "--port", str(port)])
        wait_for(lambda: "I have been elected leader" in self._log("master"), "the master", self._processes)
        private = [str(self.disk), str(cache_directory())]
        for number in range(self._count):
            alone = [
                "unshare",
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                APART,
                "sh",
                *private,
                "--",
                *(() if self._user is None else ("sh", "-c", ANOTHER, "sh")),
            ]
            command = ["worker.Worker", self.address, "--cores", "1", "--memory", "1g", "--host", "127.0.0.1"]
            self._spark_class(f"worker-{number}", command, alone)
        registered = lambda: len(re.findall("Registering worker", self._log("master"))) == self._count  # noqa: E731
        wait_for(registered, "workers", self._processes)

    def stop(self):
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait(timeout=30)

    def kill_executor(self, number):
        """End the executors of a worker at once, as if it had been preempted; return how many there were."""
        worker = self._processes[1 + number].pid
        executors = [pid for pid, parent in _parents().items() if parent == worker]
        for pid in executors:
            os.kill(pid, signal.SIGKILL)
        return len(executors)

    def users(self, number):
        """Return the ids of the users that a worker and its executors run as."""
        worker = self._processes[1 + number].pid
        there = [worker, *(pid for pid, parent in _parents().items() if parent == worker)]
        return {Path(f"/proc/{pid}").stat().st_uid for pid in there}

    def sees(self, number, path):
        """Tell whether a worker's host has a file at *path*."""
        return Path(f"/proc/{self._processes[1 + number].pid}/root{path}").exists()

    def _log(self, name):
        return (self._home / "logs" / name).read_text()

    def _spark_class(self, name, arguments, before=()):
        command = [
            *before,
            str(SPARK_HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{arguments[0]}",
        ]
        environment = self.environment
        if before and self._user is not None:
            environment = environment | {
                "HOME": str(self.disk / "home"),
                "DISK": str(self.disk),
                "KERNELS": str(kernels_directory()),
                "PREFIX": sys.base_prefix,
                "CLOSED": closed_directory(),
                "USER_ID": str(self._user),
            }
        with (self._home / "logs" / name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, *arguments[1:], "--webui-port", "0"],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    cwd=self._home,
                )
            )


@contextmanager
def running(home, count=2, user=None):
    """Provide a cluster; all its processes are stopped afterwards, by id."""
    hosts = Hosts(home, count, user)
    try:
        hosts.start()
        yield hosts
    finally:
        hosts.stop()


def _parents():
    """Return the parent of each process."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        found[int(path.parent.name)] = int(fields[1])
    return found
