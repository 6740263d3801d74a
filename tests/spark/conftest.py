"""One world for all tests on Spark."""

from types import SimpleNamespace

import pytest

from spark.worlds import in_process, message_table, subscription_table, write_files


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
