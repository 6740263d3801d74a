"""The package as a whole: light to import, true to its list of names, layered."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nearcast
from nearcast.matching import INDEXES, STORES
from nearcast.matching.structure import Structure
from nearcast.ranking.choices import FINDERS, POLICIES
from nearcast.registry import Registry
from profiles import is_rival

SOURCE = Path(nearcast.__file__).parent


def test_every_exported_name_exists():
    for name in nearcast.__all__:
        assert getattr(nearcast, name) is not None
    assert set(nearcast.__all__) <= set(dir(nearcast))
    homes = {name for names in nearcast._HOMES.values() for name in names}
    assert homes | {"__version__"} == set(nearcast.__all__)


def test_the_wheel_has_the_kernels_of_every_door():
    """What ``tools/exercise.py`` does not use is compiled on the machines of those who install the wheel."""
    used = set()
    for node in ast.walk(ast.parse((SOURCE.parents[1] / "tools" / "exercise.py").read_text())):
        if isinstance(node, ast.Name | ast.Attribute):
            used.add(node.id if isinstance(node, ast.Name) else node.attr)
    values = {"Deliveries", "Explanation", "Index", "Matches", "MessageStore", "SafeRegions", "Vocabulary"}
    homes = "columns", "covering", "engine", "matching", "ranking", "sharding"
    assert {name for home in homes for name in nearcast._HOMES[home]} - values <= used
    for door in (nearcast.Engine, nearcast.MovingIndex, nearcast.RelationGraph, nearcast.TopK):
        verbs = {name for name, value in vars(door).items() if inspect.isroutine(value) and name[0] != "_"}
        assert verbs - {"use_index"} <= used, door  # which is for measurements


def test_every_structure_says_what_a_reader_sees_during_a_change():
    """The rule is in ``matching/structure.py``; what a structure has from another one, that one says."""
    for registry in (INDEXES, STORES):
        for name in registry:
            said = " ".join(cls.__doc__ or "" for cls in registry[name].__mro__ if cls is not Structure)
            assert re.search("reader|may read", said), name
    page = (SOURCE.parents[1] / "docs" / "design.md").read_text()
    table = page.split("**Reading during a change**")[1].split("\n\n")[1]
    products = {name for registry in (INDEXES, STORES) for name in registry if not is_rival(registry, name)}
    assert set(re.findall("`([a-z-]+)`", table)) == products


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="teapot"):
        _ = nearcast.teapot


def test_import_is_light():
    """Neither numba nor pyspark (nor anything heavy) is loaded, and the import takes less than 0.3 s."""
    code = "import sys, time; t = time.perf_counter(); import nearcast; print(time.perf_counter() - t, *sys.modules)"
    best = 9.0
    for _ in range(3):  # the best of three: this machine may be busy
        out = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
        best = min(best, float(out[0]))
    loaded = {name.split(".")[0] for name in out[1:]}
    assert loaded.isdisjoint({"numba", "pyspark", "pyarrow", "shapely", "numpy", "rich", "typer"})
    assert best < 0.3


# The rooms of the house. A module imports only from its own room and from rooms further up in this list.
ROOMS = [
    "_version",
    "errors",
    "registry",
    "config",
    "clock",
    "geometry",
    "text",
    "predicates",
    "language",
    "model",
    "kernels",
    "columns",
    "storage",
    "matching",
    "ranking",
    "covering",
    "engine",
    "sharding",
    "files",
    "preparation",
    "spark",
    "workloads",
    "report",
    "demo",
    "bench",
    "cli",
    "__init__",  # the door: it names what stands in every room, and loads it at first use
    "__main__",
]

MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(code: str) -> list[str]:
    """Return the full names of all that is imported, wherever the import stands; relative ones are refused."""
    names = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno} has a relative import; write the full name"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def rooms_named(code: str) -> set[str]:
    """Return the rooms that a module imports from; what the door exports counts as taken from its home."""
    homes = {name: home for home, names in nearcast._HOMES.items() for name in names}
    homes["__version__"] = "_version"
    rooms = set()
    for name in imports_of(code):
        package, *rest = name.split(".")
        if package == "nearcast":
            first = rest[0] if rest else "__init__"
            rooms.add(homes.get(first, first).split(".")[0])
    return rooms


def test_every_module_has_a_room():
    assert {room_of(module) for module in MODULES} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_up_the_list(room):
    known = set(ROOMS[: ROOMS.index(room) + 1])
    for module in MODULES:
        if room_of(module) == room:
            beyond = rooms_named(module.read_text()) - known
            assert not beyond, f"{module.relative_to(SOURCE)} imports from {sorted(beyond)}, below {room}"


def test_the_core_imports_neither_spark_nor_typer():
    """The core has neither Spark nor a command line in it, not even in functions."""
    allowed = {"pyspark": {"spark", "demo", "bench", "cli"}, "typer": {"bench", "cli"}}
    for module in MODULES:
        packages = {name.split(".")[0] for name in imports_of(module.read_text())}
        for package, rooms in allowed.items():
            assert package not in packages or room_of(module) in rooms, f"{module} imports {package}"


# A value has its other forms as methods (``SubscriptionTable.from_arrow``, ``Message.to_json``, ``clauses()``), and the
# modules of these forms need the value: so the value imports them when the method is called. There are no other cycles.
FORMS = {
    "nearcast.predicates": {"nearcast.predicates.normal_form"},
    "nearcast.model": {"nearcast.model.documents", "nearcast.model.lines"},
    "nearcast.columns.messages": {"nearcast.columns.from_arrow", "nearcast.columns.from_objects"},
    "nearcast.columns.subscriptions": {"nearcast.columns.from_arrow", "nearcast.columns.from_objects"},
}


def name_of(module):
    return ".".join(("nearcast", *module.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def imported_at_run_time(code, names):
    """Return the modules among *names* that code imports, also inside functions, and not for types alone.

    What the door exports is taken from its home; what a module loads by a name in a registry counts as well.
    """
    homes = {name: f"nearcast.{home}" for home, exported in nearcast._HOMES.items() for name in exported}
    found, todo = set(), [ast.parse(code)]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            todo += node.orelse
            continue
        todo += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                home = homes.get(alias.name) if node.module == "nearcast" else None
                found.add(full if full in names else home or node.module)
    return found & names


def listed_by(name):
    """Return the modules of the classes in the registries that a module defines."""
    source = importlib.util.find_spec(name).origin
    if "Registry(" not in Path(source).read_text():
        return set()
    found = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, Registry)]
    return {listed[key].__module__ for listed in found for key in listed}


def test_no_module_imports_itself_by_way_of_others():
    """Not even when functions run. Cycles inside a room are as hard to follow as those between rooms."""
    names = {name_of(module): module for module in MODULES if module != SOURCE / "__init__.py"}
    graph = {
        name: imported_at_run_time(module.read_text(), set(names)) | (listed_by(name) & set(names)) - {name}
        for name, module in names.items()
    }
    for name, forms in FORMS.items():
        assert forms <= graph[name], (
            f"{name} no longer imports {sorted(forms - graph[name])}: shorten the list"
        )
        graph[name] -= forms
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise AssertionError(
            f"move what is shared to a module of its own: {' → '.join(error.args[1])}"
        ) from None


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from nearcast.a import b, name", {"nearcast.a", "nearcast.a.b"}),
        ("def later():\n    import nearcast.a.b", {"nearcast.a.b"}),
        ("if TYPE_CHECKING:\n    from nearcast.a import b\nelse:\n    import nearcast.a", {"nearcast.a"}),
        ("from nearcast import Engine, a", {"nearcast.engine", "nearcast.a"}),
        ("from numpy import a", set()),
    ],
)
def test_imports_at_run_time(code, found):
    assert imported_at_run_time(code, {"nearcast.a", "nearcast.a.b", "nearcast.engine"}) == found


VALUES = {
    "nearcast.config",
    *(
        f"nearcast.geometry.{name}"
        for name in ("EVERYWHERE", "Box", "Circle", "Everywhere", "Planar", "Point", "Polygon")
    ),
}


def test_the_specification_shares_nothing_but_values():
    """The naive answers may not come from what they are compared with."""
    specifications = sorted(Path(__file__).parents[1].rglob("naive*.py"))
    assert len(specifications) == 4
    for specification in specifications:
        own = {name for name in imports_of(specification.read_text()) if name.split(".")[0] == "nearcast"}
        assert own <= VALUES, f"{specification.name} imports {sorted(own - VALUES)}"


@pytest.mark.parametrize(
    "code",
    [
        "from nearcast.spark import session",
        "import nearcast.spark.session",
        "from nearcast import spark",
        "def later():\n    from nearcast.spark.live import worker",
        "if TYPE_CHECKING:\n    from nearcast.spark import Live",
    ],
)
def test_no_import_is_overlooked(code):
    assert rooms_named(code) == {"spark"}


def test_the_door_stands_for_the_rooms_behind_it():
    assert rooms_named("from nearcast import Engine, Vocabulary, config, open_index, __version__") == {
        "engine",
        "columns",
        "config",
        "sharding",
        "_version",
    }


def test_rivals_load_when_they_are_named():
    code = """
import sys, nearcast.matching, nearcast.ranking
assert not [name for name in sys.modules if ".rivals." in name or ".structures." in name]
nearcast.matching.INDEXES["tama"]
assert "nearcast.matching.rivals.tama" in sys.modules
assert "nearcast.matching.rivals.op_index" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classes_have_the_names_they_are_listed_by():
    for listed in (INDEXES, STORES, FINDERS, POLICIES):
        assert {name: found.name for name, found in listed.items()} == {name: name for name in listed}


def test_no_comment_is_torn_from_its_statement():
    """When a line becomes too long, the formatter leaves its comment behind the closing bracket."""
    torn = re.compile(r"^ *[)\]}]+[,:]? +# (?!fmt|type)", re.MULTILINE)
    found = {str(module.relative_to(SOURCE)) for module in MODULES if torn.search(module.read_text())}
    assert not found, f"put the comment on the line above, or shorten it: {sorted(found)}"
