"""What takes long, Hypothesis profiles, and one Spark for all tests of a worker that need it.

``default`` is the profile of every run, ``long`` that of ``--long``, ``thorough`` that of nights
(HYPOTHESIS_PROFILE=thorough), ``brief`` that of kernels that are not compiled.
"""

import os
import uuid
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from java_options import make_archive, set_options
from profiles import EXAMPLES
from scheduling import shares_spark
from stores import BUCKET, ENVIRONMENT, start_s3

# Kernels compile inside the first example, so deadlines mean nothing here.
settings.register_profile(
    "long", deadline=None, max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("default", settings.get_profile("long"), max_examples=EXAMPLES // 5)
settings.register_profile(
    "thorough", settings.get_profile("long"), max_examples=2_000, stateful_step_count=100
)
settings.register_profile("brief", settings.get_profile("long"), max_examples=5)

os.environ.update(ENVIRONMENT)
set_options()


def pytest_configure(config):
    usual = "long" if config.getoption("--long") else "default"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))
    # Older versions of PySpark leave their sockets to the garbage collector.
    if metadata.version("pyspark").startswith(("4.1.", "4.2.")):
        config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="run the tests that take long, too")


def pytest_collection_modifyitems(config, items):
    """Leave out what takes long; begin with what takes longest, the tests that share sessions of Spark."""
    if not config.getoption("--long"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]
    if hasattr(config, "workerinput"):  # several workers share the machine
        items[:] = [item for item in items if not item.get_closest_marker("alone")]
    items.sort(key=lambda item: not shares_spark(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    if item.get_closest_marker("spark"):
        make_archive()
        set_options()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from scheduling import scheduler

    return scheduler(config, log)


@pytest.fixture(scope="session")
def s3_server():
    server = start_s3()
    yield
    server.stop()


@pytest.fixture
def s3(s3_server):
    """The URI of an empty prefix in an object store on loopback."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory):
    """The URI of a directory in a Hadoop file system on loopback."""
    from hadoop import running
    from spark.broker import NotToBeHadError

    with ExitStack() as stack:
        try:
            uri = stack.enter_context(running(tmp_path_factory.mktemp("hdfs")))
        except NotToBeHadError as error:
            pytest.skip(f"HDFS: {error}")
        yield uri


@pytest.fixture(scope="session")
def connector():
    """Spark's Kafka connector, or why there is none."""
    from spark.broker import find_connector

    return find_connector()


@pytest.fixture(scope="session")
def broker(connector, spark, tmp_path_factory):
    """The address of a Kafka broker, in a session of Spark that has the connector.

    Where they are not to be had the test is skipped, or fails if NEARCAST_REQUIRE_KAFKA=1 says that they must be.
    """
    from spark.broker import NotToBeHadError, running

    give_up = pytest.fail if os.environ.get("NEARCAST_REQUIRE_KAFKA") == "1" else pytest.skip
    if not connector.jars:
        give_up(f"Kafka: {connector.reason}")
    with ExitStack() as stack:
        try:
            servers = stack.enter_context(running(tmp_path_factory.mktemp("kafka")))
        except NotToBeHadError as error:
            give_up(f"Kafka: {error}")
        yield servers


@pytest.fixture(scope="session")
def started(tmp_path_factory, request):
    """A session, and the file that has what it said on stderr: the Java process gets that file for good.

    It has the Kafka connector if there is one and a test of this run asks for a broker; no other test needs Maven.
    """
    from nearcast.spark import session

    settings = {}
    if any("broker" in getattr(item, "fixturenames", ()) for item in request.session.items):
        jars = request.getfixturevalue("connector").jars
        settings = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    said = tmp_path_factory.mktemp("spark") / "stderr"
    ours, here = os.dup(2), Path.cwd()
    os.chdir(said.parent)  # where relative paths of the Java process lead
    with said.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        spark = session("nearcast tests", cores=2, memory="1g", config=settings)
        spark.range(1).count()
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.chdir(here)
    yield SimpleNamespace(spark=spark, said=said.read_text())
    spark.stop()


@pytest.fixture(scope="session")
def spark(started):
    return started.spark
