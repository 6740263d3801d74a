"""Options of Java, and an archive of Spark's classes, with which the many Java processes of the tests start faster.

It is made once for each environment, by the first test on Spark or by ``python tests/java_options.py``. Java checks
that it was made from the same files: without it, or with one that does not fit, all works as before, only slower.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ARCHIVE = Path(sys.prefix, "spark-classes.jsa")

# Every kind of work of which the tests do much: files, SQL, Python workers, a shuffle, a stream.
TRAINING = """
import sys
from nearcast.spark import match, session

home = sys.argv[1]
spark = session("training", cores=2, memory="1g")
rows = [(f"s{n}", "tea", n / 100, 0.0, 5000.0) for n in range(100)]
subscriptions = spark.createDataFrame(rows, "id string, expression string, lon double, lat double, radius_m double")
subscriptions.write.parquet(f"{home}/subscriptions")
messages = subscriptions.selectExpr("concat('m', id) AS id", "'tea' AS text", "lon", "lat")
messages.write.json(f"{home}/messages")
spark.read.parquet(f"{home}/subscriptions").createOrReplaceTempView("subs")
spark.sql("SELECT s.expression, count(*), max(t.lon) FROM subs s JOIN subs t USING (id) GROUP BY 1").toArrow()
arriving = spark.readStream.schema(messages.schema).json(f"{home}/messages")
found = match(arriving, spark.read.parquet(f"{home}/subscriptions"), index_dir=f"{home}/versions", shards=2)
stream = found.writeStream.foreachBatch(lambda frame, _: frame.write.mode("append").parquet(f"{home}/out"))
stream.trigger(availableNow=True).option("checkpointLocation", f"{home}/checkpoint").start().awaitTermination()
assert spark.read.parquet(f"{home}/out").count()
spark.stop()
"""


# Each process lives for minutes, so nothing is compiled that is not repeated often. These options, and the archive, are
# given by the environment: Java refuses to archive classes if there are files in SPARK_CONF_DIR.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _options(archive):
    ours = f"{JAVA} {archive}"
    return f'{ours} -Dspark.sql.codegen.wholeStage=false "-Dspark.executor.defaultJavaOptions={ours}"'


def set_options():
    """Set the options of every Java process of Spark that is started from now on, with the archive, if there is one."""
    archive = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else ""
    os.environ["SPARK_SUBMIT_OPTS"] = _options(archive)
    os.environ["SPARK_DAEMON_JAVA_OPTS"] = f"{JAVA} {archive}"


def make_archive():
    """Make the archive unless it exists; processes that ask for it at once wait for the one that makes it."""
    if ARCHIVE.exists() or not os.access(ARCHIVE.parent, os.W_OK):
        return
    with ARCHIVE.with_suffix(".lock").open("w") as lock, tempfile.TemporaryDirectory() as home:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ARCHIVE.exists():
            return
        draft = ARCHIVE.with_suffix(".draft")
        options = f"{_options('')} -XX:ArchiveClassesAtExit={draft} -Xlog:disable"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
        # Java writes the archive when it ends, after Python; it keeps the pipes open until then.
        program = [sys.executable, "-c", TRAINING, home]
        subprocess.run(program, env=environment, capture_output=True, check=True, timeout=240)
        if not draft.exists():
            draft.touch()  # this Java makes none, which is no reason to try again
        draft.rename(ARCHIVE)


if __name__ == "__main__":
    set_options()
    make_archive()
