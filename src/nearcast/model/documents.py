"""Messages and subscriptions as JSON objects and GeoJSON features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from nearcast.clock import iso
from nearcast.errors import ModelError, nearest, shown
from nearcast.geometry import EVERYWHERE, WGS84, Geographic, Space, as_place, as_region, to_geojson
from nearcast.geometry.crs import require_wgs84_geojson
from nearcast.language.grammar import check_size, located
from nearcast.language.writing import format_expression
from nearcast.model import Message, Subscription
from nearcast.model.lines import time_of

__all__ = ["message_from_json", "message_to_json", "subscription_from_json", "subscription_to_json"]

_MESSAGE_FIELDS: Final = ("id", "keywords", "text", "place", "attributes", "published_at", "expires_at")
_SUBSCRIPTION_FIELDS: Final = ("id", "expression", "region")


def message_to_json(message: Message) -> str:
    """Return a message as a JSON object without its empty fields."""
    fields: dict[str, Any] = {
        "id": message.id,
        "keywords": sorted(message.keywords),
        "place": to_geojson(message.place),
    }
    if message.attributes:
        fields["attributes"] = dict(message.attributes)
    for name in ("published_at", "expires_at"):
        if (time := getattr(message, name)) is not None:
            fields[name] = time_of(iso(time))
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def message_from_json(document: str | bytes | Mapping[str, Any], *, space: Space = WGS84) -> Message:
    """Return the message of a JSON object.

    Fields: ``id``; ``keywords`` (words) or ``text`` (free text); ``place`` (GeoJSON); ``attributes``
    (object); ``published_at``, ``expires_at`` (ISO 8601 with offset, or microseconds). Or a GeoJSON Feature:
    its geometry is the place, its properties are the other fields.

    >>> message_from_json('{"id": 7, "text": "Hot soup", "place": {"type": "Point", "coordinates": [1, 2]}}')
    Message(7, 'hot soup', Point(lon=1.0, lat=2.0))
    """
    fields = _fields(document, "message", "place", _MESSAGE_FIELDS, space)
    for name in ("id", "place"):
        if fields.get(name) is None:
            raise ModelError(f"the message has no {name!r}; it needs an id and a place")
    if "text" in fields and "keywords" in fields:
        raise ModelError("the message has both 'text' and 'keywords'; give one of them")
    words = fields.get("text", fields.get("keywords", ()))
    if "text" in fields and not isinstance(words, str):
        raise ModelError(f"'text' is {shown(words)}, not a string; a list of words is called 'keywords'")
    return Message(
        fields["id"],
        words,
        as_place(fields["place"], space),
        fields.get("attributes") or {},
        published_at=fields.get("published_at"),
        expires_at=fields.get("expires_at"),
    )


def subscription_to_json(subscription: Subscription) -> str:
    """Return a subscription as a JSON object."""
    fields = {
        "id": subscription.id,
        "expression": format_expression(subscription.expression),
        "region": to_geojson(subscription.region),
    }
    return json.dumps(fields, ensure_ascii=False, allow_nan=False)


def subscription_from_json(
    document: str | bytes | Mapping[str, Any], *, space: Space = WGS84
) -> Subscription:
    """Return the subscription of a JSON object.

    Fields: ``id``; ``expression`` (its text; absent or null for every message); ``region`` (GeoJSON; absent
    or null for everywhere). Or a GeoJSON Feature: its geometry is the region, its properties are the other
    fields.

    >>> subscription_from_json('{"id": "anna", "expression": "coffee"}')
    Subscription('anna', 'coffee', EVERYWHERE)
    """
    fields = _fields(document, "subscription", "region", _SUBSCRIPTION_FIELDS, space)
    if fields.get("id") is None:
        raise ModelError("the subscription has no 'id'; give it one")
    expression = fields.get("expression")
    if expression is not None and not isinstance(expression, str):
        raise ModelError(
            f"'expression' is {shown(expression)}, not a string; write it as text, like \"coffee NOT decaf\""
        )
    region = fields.get("region")
    return Subscription(fields["id"], expression, EVERYWHERE if region is None else as_region(region, space))


def _fields(document: Any, what: str, where: str, known: tuple[str, ...], space: Space) -> dict[str, Any]:
    """Return the fields of an object, or of a Feature in the same form; unknown fields are refused."""
    loaded = document if isinstance(document, Mapping) else _load(document)
    if not isinstance(loaded, Mapping):
        raise ModelError(f"{shown(loaded)} is not a {what}; give a JSON object")
    fields = dict(loaded)
    if fields.get("type") == "Feature":
        if isinstance(space, Geographic):
            require_wgs84_geojson(fields)
        properties = fields.get("properties") or {}
        if not isinstance(properties, Mapping):
            raise ModelError(f"the properties of a Feature are {shown(properties)}; give an object")
        outer = {"id": fields["id"]} if "id" in fields else {}
        if twice := [name for name in properties if name in outer or name == where]:
            raise ModelError(
                f"{shown(twice[0])} is given twice, by the Feature and by its properties; give it once"
            )
        fields = {**properties, **outer, where: fields.get("geometry")}
    if unknown := [name for name in fields if name not in known]:
        near = nearest(unknown[0], known)
        hint = f"did you mean {near}? " if near else ""
        raise ModelError(
            f"a {what} has no field {shown(unknown[0])}; {hint}its fields are {', '.join(known)}"
        )
    return fields


def _load(document: Any) -> Any:
    """Return the value of a JSON text; its mistakes become a :class:`ModelError`."""
    if not isinstance(document, str | bytes | bytearray):
        raise ModelError(f"{shown(document)} is not JSON; give a string, bytes or a mapping")
    check_size(document)
    try:
        return json.loads(document, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ModelError(located(error.doc, error.pos, f"this is not JSON: {error.msg}")) from None
    except UnicodeDecodeError as error:
        raise ModelError(f"this is not JSON: byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise ModelError(
            "this JSON is nested too deeply for a message or a subscription; flatten it"
        ) from None
    except ModelError:
        raise
    except ValueError as error:  # an integer of thousands of digits
        raise ModelError(f"this JSON has a number that is too long: {error}") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ModelError(f"{name} is not a number in JSON; leave the value out")
