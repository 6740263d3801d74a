"""Writes deliveries to a table of Delta or Iceberg, in a process of its own: ``python table_formats.py delta HOME``.

The recipes of docs/sinks.md. Spark forgets that it has committed a micro-batch, as after a crash between the commit of
the table and its own, and repeats it. The number of deliveries after each run is printed as JSON.
"""

import json
import sys
from pathlib import Path

import pyspark

from nearcast.spark import build, match, session

# By Spark's version: what Maven Central has.
PACKAGES = {
    "delta": {
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
}
SPARK = ".".join(pyspark.__version__.split(".")[:2])
MESSAGES = "id long, lon double, lat double, text string"


def settings(form, home):
    """Return the settings of a session for a format."""
    if form == "delta":
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(home / "lake"),
    }


def delta_sink(table, application):
    """Return a function for foreachBatch: Delta skips a version of an application that it has committed."""

    def write(deliveries, batch):
        writer = deliveries.write.format("delta").mode("append")
        writer.option("txnAppId", application).option("txnVersion", batch).save(table)

    return write


def main(form, home):
    spark = session(
        packages=[PACKAGES[form][SPARK]], config={"spark.log.level": "FATAL", **settings(form, home)}
    )
    asking = [("anna", "tea"), ("ben", "tea OR milk")]
    version = build(spark.createDataFrame(asking, "id string, expression string"), home / "versions")
    if form == "iceberg":
        columns = match(spark.createDataFrame([], MESSAGES), version).schema
        spark.createDataFrame([], columns).writeTo("lake.db.deliveries").create()

    def arrive(*texts):
        rows = [(number, 0.0, 0.0, text) for number, text in enumerate(texts)]
        frame = spark.createDataFrame(rows, MESSAGES).coalesce(1)
        frame.write.mode("append").parquet(str(home / "incoming"))

    def run():
        arriving = spark.readStream.schema(MESSAGES).parquet(str(home / "incoming"))
        stream = match(arriving, version).writeStream.trigger(availableNow=True)
        stream = stream.option("checkpointLocation", str(home / "checkpoint"))
        if form == "delta":
            query = stream.foreachBatch(delta_sink(str(home / "deliveries"), "alerts")).start()
        else:
            query = stream.format("iceberg").outputMode("append").toTable("lake.db.deliveries")
        query.awaitTermination()
        if form == "delta":
            return spark.read.format("delta").load(str(home / "deliveries")).count()
        return spark.table("lake.db.deliveries").count()

    arrive("tea", "milk")
    counts = [run()]
    (last,) = (home / "checkpoint" / "commits").glob("[0-9]*")
    last.unlink()
    Path(last.parent, f".{last.name}.crc").unlink()
    counts.append(run())
    repeated = (home / "checkpoint" / "commits" / last.name).exists()
    arrive("tea")
    counts.append(run())
    spark.stop()
    sys.stdout.write(json.dumps({"counts": counts, "repeated": repeated}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
