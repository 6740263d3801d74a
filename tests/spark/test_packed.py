"""A packed environment: executors get Python and the package from an archive, and only PySpark from the platform."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spark import hosts as clusters
from spark.test_cluster import PAGE, counted
from spark.worlds import in_process, message_table, subscription_table, write_files

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1200)]

JOB = """
import json, sys
import pyarrow as pa
import pyarrow.parquet as pq
from nearcast import config
from nearcast.spark import build, match, session

world, home = sys.argv[1:]
config.SPARK_DRIVER_ROWS = 10
spark = session()
read = lambda name: spark.createDataFrame(pq.read_table(f"{world}/{name}")).repartition(3)
found = match(read("messages"), build(read("subscriptions"), home, shards=2)).toArrow()

def look(batches):
    import nearcast, pyspark
    for batch in batches:
        yield pa.RecordBatch.from_pylist([{"package": nearcast.__file__, "spark": pyspark.__file__}])

where = spark.range(0, 4, 1, 4).mapInArrow(look, "package string, spark string").distinct().collect()
pairs = list(zip(*(found[name].to_pylist() for name in ("message_id", "subscription_id"))))
print(json.dumps({"pairs": pairs, "where": [row.asDict() for row in where]}))
"""


@pytest.fixture
def hosts(tmp_path, s3_server, monkeypatch):
    if not clusters.can_be_apart():
        pytest.skip("this user may not make mount namespaces")
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it would lead to the package of the tests
    (tmp_path / "hosts").mkdir()
    with clusters.running(tmp_path / "hosts") as found:
        yield found


def recipe():
    """Return the commands under "YARN" in the page: that which packs, and that which submits."""
    _, section = PAGE.read_text().split("## YARN", 1)
    packing, submitting = section.split("```bash")[1].split("```")[0].strip().split("\n\n")
    return packing, submitting


def test_the_recipe_of_the_page(hosts, tmp_path, s3):
    """As it stands, with the checkout for the name of the package and the address of this master."""
    subscriptions, messages = subscription_table(), message_table()
    write_files(subscriptions, tmp_path / "world" / "subscriptions", 2)
    write_files(messages, tmp_path / "world" / "messages", 3)
    (tmp_path / "job.py").write_text(JOB)
    packing, submitting = recipe()
    checkout = Path(__file__).parents[2]
    packing = re.sub(r"^python\d*", sys.executable, packing).replace("nearcast[cloud]", f"{checkout}[cloud]")
    submitting = submitting.replace("--master yarn", f"--master {hosts.address}")
    submitting = submitting.replace("spark-submit", f"{clusters.SPARK_HOME}/bin/spark-submit")
    own = "--conf spark.driver.host=127.0.0.1 --conf spark.executor.memory=512m --conf spark.executor.cores=1"
    submitting = submitting.replace(" job.py", f" {own} job.py {tmp_path}/world {s3}")
    assert hosts.address in submitting
    assert "job.py /" in submitting
    for command in (packing, submitting):
        ran = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=hosts.environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert counted(found["pairs"]) == in_process(messages, subscriptions)
    installed = Path(os.path.relpath(next((tmp_path / "nearcast").glob("lib/python*")), tmp_path))
    for each in found["where"]:
        assert each["package"].startswith(str(hosts.disk / "work"))
        assert each["package"].endswith(f"{installed}/site-packages/nearcast/__init__.py")
        assert each["spark"].startswith(str(clusters.SPARK_HOME))
