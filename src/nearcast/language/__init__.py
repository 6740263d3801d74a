"""The written form of expressions.

``coffee AND (discount OR "happy hour") NOT decaf`` asks for words. ``NOT`` binds closest, then ``AND``, then ``OR``.
Words side by side are joined by ``AND``. A phrase in double quotes asks for all of its words. ``*`` is every message.

Attributes are compared: ``price < 3300``, ``100 <= capacity <= 256``, ``brand = "Huawei"``, ``brand != "Huawei"``,
``rating IN (4, 5)``, ``rating NOT IN (1, 2)``. A name that is not an identifier is put in backticks, with the escapes
of a string and two backticks for one.

The operators ``AND OR NOT IN WITHIN`` are recognised in upper and lower case, so that ``coffee or tea`` means what it
says; to ask for such a word, quote it: ``"or"``. Reading a written expression returns an equal expression.
"""

from nearcast.language.reading import parse
from nearcast.language.writing import format_expression

__all__ = ["format_expression", "parse"]
