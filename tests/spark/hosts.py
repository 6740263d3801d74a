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
import time
from contextlib import contextmanager
from pathlib import Path

import pyspark

from nearcast.spark.java import find_java, wrap
from nearcast.storage.cache import cache_directory

SPARK_HOME = Path(pyspark.__file__).parent
# Mounts an empty file system on each directory before --, then becomes the command after it.
APART = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 1; shift; done; shift; mkdir -p "$TMPDIR"; exec "$@"'


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


class Hosts:
    """A running cluster."""

    def __init__(self, home, count):
        #: The directory that every host, and the driver, has for itself.
        self.disk = home / "disk"
        self.disk.mkdir()
        (home / "logs").mkdir()
        self._home, self._count = home, count
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
        with (self._home / "logs" / name).open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, *arguments[1:], "--webui-port", "0"],
                    env=self.environment,
                    stdout=log,
                    stderr=log,
                    cwd=self._home,
                )
            )


@contextmanager
def running(home, count=2):
    """Provide a cluster; all its processes are stopped afterwards, by id."""
    hosts = Hosts(home, count)
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
