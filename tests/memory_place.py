"""A place in memory that counts what is done with it, and whose answers can be lost; those of a disk, too."""

from collections import Counter
from io import BytesIO
from pathlib import Path

from nearcast.storage.disk import Disk
from nearcast.storage.places import Entry, Place

_ROOTS = {}


class Memory(Place):
    """Files in a dict that all places under one root share."""

    def __init__(self, uri):
        super().__init__(uri)
        root, _, self._prefix = uri.removeprefix("memory://").partition("/")
        self.files, self.counts, self.answers = _ROOTS.setdefault(root, ({}, Counter(), {}))
        self._prefix += "/" if self._prefix else ""

    def _count(self, what, size=0):
        self.counts[what] += 1
        self.counts["bytes"] += size

    def read(self, name):
        found = self.files.get(self._prefix + name)
        self._count("reads", len(found or b""))
        if found is None:
            raise FileNotFoundError(f"{self.uri}/{name}")
        return found

    def read_tagged(self, name):
        try:
            content = self.read(name)
        except FileNotFoundError:
            return None
        return content, str(hash(content))

    def open(self, name):
        return BytesIO(self.read(name))

    def download(self, name, path):
        path.write_bytes(self.read(name))

    def write(self, name, content):
        content = content.read_bytes() if isinstance(content, Path) else bytes(content)
        self._count("writes", len(content))
        self.files[self._prefix + name] = content

    def _answer(self, name):
        """What the caller is told of a file that was written: the truth, unless a test has put another answer there."""
        answer = self.answers.pop(self._prefix + name, True)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def create(self, name, content):
        if self._prefix + name in self.files:
            self._count("reads")
            return False
        self.write(name, content)
        return self._answer(name)

    def swap(self, name, content, tag):
        found = self.read_tagged(name)
        if tag != (None if found is None else found[1]):
            return False
        self.write(name, content)
        return self._answer(name)

    def entries(self, prefix=""):
        start = self._prefix + prefix
        found = [name for name in self.files if name.startswith(start)]
        self._count("listed", 100 * len(found))
        return sorted(Entry(name.removeprefix(self._prefix), len(self.files[name]), 0.0) for name in found)

    def children(self):
        return sorted({entry.name.partition("/")[0] for entry in self.entries()})

    def exists(self, name):
        self._count("reads")
        return self._prefix + name in self.files

    def remove(self, names):
        if names:
            self._count("removes")
        for name in names:
            self.files.pop(self._prefix + name, None)

    def clear(self):
        self.remove([entry.name for entry in self.entries()])


def lose_answer(patch, name, answer):
    """Let a disk create or swap *name* once, and raise *answer*, or return it, as if it had not."""
    for call in ("create", "swap"):
        own = getattr(Disk, call)

        def told(self, file, *arguments, own=own):
            done = own(self, file, *arguments)
            if file != name:
                return done
            patch.undo()
            if isinstance(answer, BaseException):
                raise answer
            return answer

        patch.setattr(Disk, call, told)
