"""The indexes and the kinds of buffer to choose from, by name. The results are the same with all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nearcast.errors import InputError, UnknownError, shown
from nearcast.ranking.policies import Policy
from nearcast.registry import Registry

if TYPE_CHECKING:
    from nearcast.ranking.finder import Finder
    from nearcast.ranking.scoring import Metric

__all__ = ["FINDERS", "POLICIES", "check_named", "finder_of", "policy_of"]

FINDERS: Registry[type[Finder]] = Registry(
    {
        "blocks": "nearcast.ranking.blocks:Blocks",
        "igpt": "nearcast.ranking.igpt:IGPT",
        "ciq": "nearcast.ranking.rivals.ciq:CIQ",
        "scan": "nearcast.ranking.finder:ScanFinder",
    }
)
POLICIES: Registry[type[Policy]] = Registry(
    {
        "cost-based": "nearcast.ranking.policies:CostBased",
        "kmax": "nearcast.ranking.rivals.policies:KMax",
        "skyband": "nearcast.ranking.rivals.policies:Skyband",
    }
)


def finder_of(index: Any, metric: Metric) -> Finder:
    """Return the finder of a given name, or the one that a callable makes."""
    made: Finder = index(metric) if callable(index) else _known(index, FINDERS, "index")(metric)
    return made


def policy_of(buffer: Any) -> Policy:
    """Return the policy of a given name, or the policy that is given."""
    if isinstance(buffer, Policy):
        return buffer
    made: Policy = _known(buffer, POLICIES, "buffer")()
    return made


def check_named(finder: Finder, policy: Policy) -> None:
    """Raise unless both could be found again by their names."""
    for one, known in ((finder, FINDERS), (policy, POLICIES)):
        if known.get(one.name) is not type(one):
            raise InputError(
                f"{shown(one)} cannot be saved, because it has no name; use one of {', '.join(known)}"
            )


def _known(name: Any, known: Registry[Any], what: str) -> Any:
    if not isinstance(name, str) or name not in known:
        raise UnknownError(f"no {what} {shown(name)}; there are {', '.join(known)}")
    return known[name]
