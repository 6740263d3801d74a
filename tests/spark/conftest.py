"""One Spark session for all tests, and one world."""

import os
from types import SimpleNamespace

import pytest

from nearcast.spark import session
from spark.worlds import in_process, message_table, subscription_table, write_files


@pytest.fixture(scope="session")
def started(tmp_path_factory):
    """A session, and the file that has what it said on stderr: the Java process gets that file for good."""
    said = tmp_path_factory.mktemp("spark") / "stderr"
    ours = os.dup(2)
    with said.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        spark = session("nearcast tests", cores=2, memory="1g")
        spark.range(1).count()
    finally:
        os.dup2(ours, 2)
        os.close(ours)
    yield SimpleNamespace(spark=spark, said=said.read_text())
    spark.stop()


@pytest.fixture(scope="session")
def spark(started):
    return started.spark


@pytest.fixture(scope="session")
def world(spark, tmp_path_factory):
    """The tables, their files, the DataFrames that read them, and the expected deliveries."""
    home = tmp_path_factory.mktemp("world")
    subscriptions, messages = subscription_table(), message_table()
    return SimpleNamespace(
        home=home,
        subscription_table=subscriptions,
        message_table=messages,
        subscriptions=spark.read.parquet(str(write_files(subscriptions, home / "subscriptions", 2))),
        messages=spark.read.parquet(str(write_files(messages, home / "messages", 3))),
        expected=in_process(messages, subscriptions),
    )
