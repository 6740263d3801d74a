"""Build a wheel with compiled kernels, so that the first call on another machine compiles nothing.

    python tools/build_wheel.py [DIRECTORY [DOOR …]]

The kernels are compiled for x86-64-v3 (processors of about 2015 and later), for the Python and the Numba that run this
tool: the wheel is tagged for that Python; with another Numba it works, and compiles as any wheel does. On an aarch64
machine the same tool compiles for every processor of that kind; nobody has run it there yet. What is compiled is what
the doors of ``exercise.py`` need: those named, or all.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from nearcast.kernels.cache import SHIPPED

ROOT = Path(__file__).resolve().parents[1]
COMPILED = "nearcast/kernels/compiled"


def main(target: Path, doors: Sequence[str] = ()) -> Path:
    """Build the wheel into *target*, with the kernels of these doors, or of all; return its path."""
    if platform.machine() not in SHIPPED:
        raise SystemExit(f"kernels are shipped for {' and '.join(SHIPPED)}; this is {platform.machine()}")
    with tempfile.TemporaryDirectory() as folder:
        room = Path(folder)
        plain = plain_wheel(room)
        kernels = compiled_kernels(plain, room, doors)
        target.mkdir(parents=True, exist_ok=True)
        wheel = target / tagged_name(plain)
        write(plain, kernels, wheel)
    size = wheel.stat().st_size / 2**20
    print(f"{wheel}: {len(kernels)} kernels for {SHIPPED[platform.machine()][0]}, {size:.1f} MB")
    return wheel


def plain_wheel(room: Path) -> Path:
    """Build a wheel of only the sources."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(room)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(room.glob("*.whl"))


def compiled_kernels(plain: Path, room: Path, doors: Sequence[str]) -> list[Path]:
    """Install the wheel in a folder of its own, use the doors, and return the kernels that this compiled."""
    package, kept = room / "package", room / "kernels"
    kept.mkdir(mode=0o700)
    with zipfile.ZipFile(plain) as archive:
        archive.extractall(package)
    processor = {"NUMBA_CPU_NAME": SHIPPED[platform.machine()][0], "NUMBA_CPU_FEATURES": ""}
    environment = os.environ | processor | {"PYTHONPATH": str(package), "NEARCAST_CACHE_DIR": str(kept)}
    command = [sys.executable, str(ROOT / "tools" / "exercise.py"), *doors]
    subprocess.run(command, env=environment, check=True)
    return sorted(kept.glob("*.kernel"))


def tags() -> tuple[str, str]:
    """Return the Python and the platform that the wheel is for."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return python, sysconfig.get_platform().replace("-", "_").replace(".", "_")


def tagged_name(plain: Path) -> str:
    """Return the name of the wheel with its tags."""
    python, system = tags()
    name, version = plain.name.split("-")[:2]
    return f"{name}-{version}-{python}-{python}-{system}.whl"


def write(plain: Path, kernels: list[Path], wheel: Path) -> None:
    """Write the files of the plain wheel and the kernels into *wheel*, with its tags and checksums."""
    python, system = tags()
    records = []
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:

        def add(name: str, content: bytes) -> None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            records.append(f"{name},sha256={digest},{len(content)}")
            out.writestr(name, content)

        record = next(name for name in source.namelist() if name.endswith(".dist-info/RECORD"))
        for name in source.namelist():
            content = source.read(name)
            if name.endswith(".dist-info/WHEEL"):
                content = content.replace(b"Root-Is-Purelib: true", b"Root-Is-Purelib: false")
                content = content.replace(b"Tag: py3-none-any", f"Tag: {python}-{python}-{system}".encode())
            if name != record:
                add(name, content)
        for kernel in kernels:
            add(f"{COMPILED}/{kernel.name}", kernel.read_bytes())
        out.writestr(record, "\n".join([*records, f"{record},,", ""]))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist", sys.argv[2:])
