"""A real Kafka for tests: the broker's and the connector's jars from Maven, and one broker process on loopback.

Ivy, which PySpark brings along, fetches the jars into its cache (``~/.ivy2``). ``NEARCAST_IVY_SETTINGS`` may name a
settings file for Ivy on a machine that cannot reach Maven Central. A class path is noted beside the cache once it was
found, so that later runs need no network.

Spark's connector must have the version of PySpark. A repository may have it and lack a library that it asks for:
``NEARCAST_KAFKA_STANDIN`` then names other versions of such libraries, separated by commas, which are used only if the
right ones cannot be fetched; a test then says so in the summary of each run.
"""

import fcntl
import hashlib
import os
import re
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError

from nearcast.spark import kafka
from nearcast.spark.java import find_java

SERVER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # so that errors of the broker are shown
)
RESOLVE_SECONDS = 120  # for Ivy with an empty cache; a test has time for two runs
START_SECONDS = 60  # for the broker
STOP_SECONDS = 20
PARTITIONS = 3  # of a topic
CLUSTER = "bmVhcmNhc3QtdGVzdHMtMQ"  # 16 bytes in base64: the form that Kafka requires

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
NOTES = Path.home() / ".ivy2" / "nearcast"


class NotToBeHadError(Exception):
    """No repository has the artifacts, or none answers."""


@dataclass(frozen=True)
class Connector:
    """Spark's Kafka connector as jars, or why there is none."""

    jars: tuple[Path, ...] = ()
    reason: str | None = None  #: why the connector of this PySpark is not to be had

    @property
    def matching(self):
        return self.reason is None


def find_connector():
    """Return the connector of this PySpark, if need be with the stand-ins that the environment names, or the reason."""
    try:
        return Connector(_beyond_spark(resolve(*kafka.packages())))
    except NotToBeHadError as error:
        reason = str(error)
    standin = os.environ.get("NEARCAST_KAFKA_STANDIN")
    if not standin:
        return Connector(reason=reason)
    try:
        return Connector(_beyond_spark(resolve(*kafka.packages(), *standin.split(","))), reason)
    except NotToBeHadError as error:
        return Connector(reason=f"{reason}; with {standin}: {error}")


def resolve(*coordinates):
    """Return the jars of Maven coordinates and of all their dependencies, fetched if they are not in the cache.

    A version that is given takes precedence over the one that another artifact asks for.
    """
    described = _ivy_file(coordinates)
    note = NOTES / hashlib.sha256(described.encode()).hexdigest()[:16]
    NOTES.mkdir(parents=True, exist_ok=True)
    with NOTES.joinpath("lock").open("w") as lock:  # Ivy's cache is not made for several processes at a time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if note.exists():
            jars = tuple(map(Path, note.read_text().split(os.pathsep)))
            if all(jar.exists() for jar in jars):
                return jars
        path = _fetch(described, coordinates)
        note.write_text(path)
    return tuple(map(Path, path.split(os.pathsep)))


def _fetch(described, coordinates):
    """Let Ivy fetch what is described; return the class path."""
    (ivy,) = SPARK_JARS.glob("ivy-*.jar")
    settings = os.environ.get("NEARCAST_IVY_SETTINGS")
    with tempfile.TemporaryDirectory() as directory:
        asked, found = Path(directory, "ivy.xml"), Path(directory, "path")
        asked.write_text(described)
        command = [_java(), "-Xmx256m", "-jar", ivy, *(["-settings", settings] if settings else [])]
        command += ["-warn", "-ivy", asked, "-confs", "default", "-cachepath", found]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_SECONDS)
        except subprocess.TimeoutExpired:
            raise NotToBeHadError(f"no Maven repository answered within {RESOLVE_SECONDS} s") from None
        if ran.returncode:
            raise NotToBeHadError(_complaint(ran.stdout + ran.stderr, coordinates))
        return found.read_text().strip()


def _ivy_file(coordinates):
    parts = [written.split(":") for written in coordinates]
    wanted = "".join(f'<dependency org="{group}" name="{name}" rev="{rev}"/>' for group, name, rev in parts)
    wanted += "".join(f'<override org="{group}" module="{name}" rev="{rev}"/>' for group, name, rev in parts)
    return (
        '<ivy-module version="2.0"><info organisation="nearcast" module="tests"/>'
        '<configurations><conf name="default"/></configurations>'
        f'<dependencies defaultconf="default->default">{wanted}</dependencies></ivy-module>\n'
    )


def _complaint(said, coordinates):
    """Return what Ivy did not find, in one line."""
    missing = sorted(set(re.findall(r":: (\S+#\S+;[^\s:]+): ", said)))
    return f"no Maven repository that answers has {', '.join(missing or coordinates)}"


def _beyond_spark(jars):
    """Return the jars of the libraries that PySpark does not have already in some version."""
    there = {_library(jar) for jar in SPARK_JARS.glob("*.jar")}
    return tuple(jar for jar in jars if _library(jar) not in there)


def _library(jar):
    return re.sub(r"-\d[\w.]*(-\w+)?\.jar$", "", jar.name)


@contextmanager
def running(directory):
    """Run a broker with its controller and its data in *directory*; yield the address for clients.

    It is stopped at the end of the block, whatever happens in it, and no other process is.
    """
    path = os.pathsep.join(map(str, resolve(*SERVER)))
    port, controller = _free_ports(2)
    properties = directory / "server.properties"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "broker.session.timeout.ms": 60_000,  # on a busy machine a heartbeat may be late
        "log.dirs": directory / "data",
        # A producer that writes to a topic while the broker is making it may wait for two minutes (KAFKA-15591).
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 2**21,  # the default is half of the memory that this process has
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = [_java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", path]
    said = directory / "said"
    with said.open("wb") as out:
        talk = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT, "cwd": directory}
        formatted = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", properties]
        subprocess.run(formatted, check=True, timeout=START_SECONDS, **talk)
        process = subprocess.Popen([*java, "kafka.Kafka", properties], **talk)
    try:
        _await(process, port, said)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def create_topics(spark, servers, *names):
    """Create topics with three partitions; when this returns, the broker accepts records for all of them.

    It asks for their latest offsets, which only the leader of a partition knows: the broker learns of a topic some time
    after the controller has made it.
    """
    java, kafka = spark._jvm.java, spark._jvm.org.apache.kafka
    settings = java.util.HashMap()
    settings.put("bootstrap.servers", servers)
    admin = kafka.clients.admin.AdminClient.create(settings)
    try:
        topics, latest = java.util.ArrayList(), java.util.HashMap()
        for name in names:
            topics.add(kafka.clients.admin.NewTopic(name, PARTITIONS, 1))
            for number in range(PARTITIONS):
                partition = kafka.common.TopicPartition(name, number)
                latest.put(partition, kafka.clients.admin.OffsetSpec.latest())
        admin.createTopics(topics).all().get()
        limit = time.monotonic() + START_SECONDS
        while True:
            try:
                admin.listOffsets(latest).all().get()
                return
            except Py4JJavaError as error:
                if "UnknownTopicOrPartition" not in str(error) or time.monotonic() > limit:
                    raise
                time.sleep(0.1)
    finally:
        admin.close()


def _await(process, port, said):
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit:
        assert process.poll() is None, f"the broker ended with {process.returncode}: {said.read_text()}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the broker was not there after {START_SECONDS} s: {said.read_text()}")


def _free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _java():
    return find_java().home / "bin" / "java"
