"""What Spark was told before this program asked: by ``spark-submit``, in the environment, or in a file of defaults."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

__all__ = ["given_settings", "is_submitted"]

# Options of spark-submit that are settings under another name.
_OPTIONS = {
    "--master": "spark.master",
    "--remote": "spark.remote",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--packages": "spark.jars.packages",
}


def is_submitted() -> bool:
    """Return whether ``spark-submit`` runs this program: then Java runs already, and waits for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def given_settings() -> dict[str, str]:
    """Return the settings that were made before: ``spark.master``, ``spark.remote``, and all others."""
    remote = {"spark.remote": os.environ["SPARK_REMOTE"]} if "SPARK_REMOTE" in os.environ else {}
    if is_submitted() and not remote:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()  # connects to the Java process; no session is started
        return dict(SparkConf().getAll())
    return {**_defaults(), **_submit_arguments(), **remote}


def _defaults() -> dict[str, str]:
    """Return the settings in ``spark-defaults.conf``, where Spark looks for it."""
    home = os.environ.get("SPARK_HOME")
    directory = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    file = Path(directory, "spark-defaults.conf") if directory else None
    if file is None or not file.is_file():
        return {}
    settings = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        found = re.fullmatch(r"\s*(spark\.[^\s=:]+)(?:\s*[=:]\s*|\s+)(.*?)\s*", line)
        if found:
            settings[found[1]] = found[2]
    return settings


def _submit_arguments() -> dict[str, str]:
    """Return the settings in ``PYSPARK_SUBMIT_ARGS``, with which notebooks tell PySpark how to start Java."""
    settings = {}
    words = iter(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    for word in words:
        option, equals, value = word.partition("=")
        if option in ("--conf", "-c"):
            name, _, value = (value if equals else next(words, "")).partition("=")
            settings[name] = value
        elif option in _OPTIONS:
            settings[_OPTIONS[option]] = value if equals else next(words, "")
    return settings
