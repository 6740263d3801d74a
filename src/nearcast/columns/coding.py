"""The coding of tables and batches: words, attributes and their strings, the space, and the analysis of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from nearcast.columns.attributes import AttributeNames
from nearcast.columns.parts import Arrays, nested, part_of
from nearcast.columns.vocabulary import Vocabulary
from nearcast.errors import ColumnError, shown
from nearcast.geometry import WGS84, Planar, Space

__all__ = ["CodedColumns", "Coding", "coding_of", "coding_or_new"]

_ANALYSIS = "plain"  # the only one so far: NFKC, casefold, runs of letters and digits


@dataclass(frozen=True, slots=True, eq=False)
class Coding:
    """What a table and a batch must share to be matched; ``like=`` takes one, or anything that has one.

    A batch that was made for one coding is refused by another. A *bare* coding has no words: its tables and batches
    were made from arrays, and the caller works with codes.

    >>> Coding.new(), Coding()
    (<Coding: 0 words, 0 attributes>, <Coding: bare codes>)
    """

    vocabulary: Vocabulary | None = None  # of the keywords
    attributes: AttributeNames | None = None  # of the tests and values
    space: Space = WGS84
    analysis: str = _ANALYSIS  # how a text becomes keywords

    @classmethod
    def new(cls, space: Space = WGS84) -> Coding:
        """Return a coding that knows no word yet."""
        return cls(Vocabulary(), AttributeNames(), space)

    def __repr__(self) -> str:
        if self.vocabulary is None or self.attributes is None:
            return "<Coding: bare codes>"
        return f"<Coding: {len(self.vocabulary):,} words, {len(self.attributes):,} attributes>"

    @property
    def coding(self) -> Coding:
        """The coding itself, so that ``like=`` takes it as it takes anything else that has a coding."""
        return self

    def fits(self, other: Coding) -> bool:
        """Tell whether the codes of the two codings mean the same."""
        return self.vocabulary is other.vocabulary and self.attributes is other.attributes

    def words(self) -> tuple[Vocabulary, AttributeNames]:
        """Return the vocabulary and the attributes; a bare coding has none, and raises."""
        if self.vocabulary is None or self.attributes is None:
            raise ColumnError(
                "the subscriptions were built from bare codes, so words cannot be looked up; "
                "give the messages as arrays of the same codes"
            )
        return self.vocabulary, self.attributes

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of codes of words and of attributes; for a bare coding, the number of possible codes."""
        words, attributes = self.vocabulary, self.attributes
        return 2**31 if words is None else words.span, 2**31 if attributes is None else attributes.span

    def document(self) -> dict[str, Any]:
        """Return, as plain values, what :meth:`restored` needs besides the arrays."""
        space, attributes = self.space, self.attributes
        return {
            "attributes": None if attributes is None else list(attributes.columns),
            "space": [space.xmin, space.ymin, space.xmax, space.ymax]
            if isinstance(space, Planar)
            else "WGS84",
            "analysis": self.analysis,
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the flat arrays that :meth:`restored` takes."""
        return nested(
            words={} if self.vocabulary is None else self.vocabulary.arrays(),
            strings={} if self.attributes is None else self.attributes.strings.arrays(),
        )

    @classmethod
    def restored(cls, document: dict[str, Any], arrays: Arrays) -> Coding:
        """Return the coding that *document* and *arrays* came from, on the same arrays."""
        words, attributes, space = part_of(arrays, "words"), document["attributes"], document["space"]
        if document["analysis"] != _ANALYSIS:
            raise ColumnError(
                f"the words come from the analysis {shown(document['analysis'])}; this version has "
                f"{shown(_ANALYSIS)} alone, so open it with the version that wrote it"
            )
        return cls(
            Vocabulary.from_arrays(words) if words else None,
            None
            if attributes is None
            else AttributeNames(
                [None if column is None else (str(column[0]), bool(column[1])) for column in attributes],
                Vocabulary.from_arrays(part_of(arrays, "strings")),
            ),
            WGS84 if space == "WGS84" else Planar(*space),
        )


class CodedColumns:
    """Columns that have a coding."""

    __slots__ = ()
    coding: Coding

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words that codes stand for; None where the caller works with codes."""
        return self.coding.vocabulary

    @property
    def attributes(self) -> AttributeNames | None:
        """The attributes that column numbers stand for; None where the caller works with numbers."""
        return self.coding.attributes

    @property
    def space(self) -> Space:
        """The space of the places."""
        return self.coding.space


def coding_of(like: Any) -> Coding:
    """Return the coding of the value of ``like=``: a coding, an index, an engine, a table or a batch."""
    coding = getattr(like, "coding", None)
    if not isinstance(coding, Coding):
        raise ColumnError(f"like= takes a Coding, an index, an engine or a table, not {shown(like)}")
    return coding


def coding_or_new(like: Any, space: Space = WGS84) -> Coding:
    """Return the coding of *like*, or a new one if *like* is None."""
    return Coding.new(space) if like is None else coding_of(like)
