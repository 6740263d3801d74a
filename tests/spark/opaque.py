"""A user-defined type over bytes, like Sedona's geometries: only its own library knows what the bytes are."""

from pyspark.sql.types import BinaryType, UserDefinedType


class GeometryUDT(UserDefinedType):
    """A stand-in by type alone: nothing here has Sedona's bytes."""

    @classmethod
    def sqlType(cls):
        return BinaryType()

    @classmethod
    def module(cls):
        return __name__
