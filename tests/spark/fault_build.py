"""A driver whose tasks build the shards of a few subscriptions; a task that fails is tried again."""

import sys
from pathlib import Path

if __name__ == "__main__":
    from nearcast import config
    from nearcast.spark import build, session

    home = Path(sys.argv[1])
    config.SPARK_DRIVER_ROWS, config.SHARD_SUBSCRIPTIONS = 2, 60
    settings = {"spark.python.daemon.module": "fault_daemon"}
    spark = session("nearcast faults", master="local[2,4]", memory="1g", config=settings)
    subscriptions = spark.read.parquet((home / "subscriptions.parquet").as_uri())
    build(subscriptions, home / "versions", distribution="location", shards=3)
    spark.stop()
