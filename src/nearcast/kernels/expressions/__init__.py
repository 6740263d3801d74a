"""Turns expressions into clauses in bulk: the compiled twin of :mod:`nearcast.language` for what most people write.

Bytes become tokens (:mod:`~nearcast.kernels.expressions.scanning`), tokens a program of steps
(:mod:`~nearcast.kernels.expressions.reading`), the program a normal form
(:mod:`~nearcast.kernels.expressions.normal_form`), and that a run of clauses in columns
(:mod:`~nearcast.kernels.expressions.writing`).

Nothing here reports errors. An expression that is wrong, unusual or large is *left to Python*: it gets no clauses here,
and the caller gives it to the parser, which can say why. What is read here means exactly what that parser would say.
"""
