"""Expressions to clauses, in bulk: the compiled twin of :mod:`nearcast.language` for what most people write.

Bytes become tokens (:mod:`~nearcast.kernels.expressions.scanning`), tokens a program of steps
(:mod:`~nearcast.kernels.expressions.reading`), the program a normal form
(:mod:`~nearcast.kernels.expressions.normal_form`), and that a run of clauses in columns
(:mod:`~nearcast.kernels.expressions.writing`).

Nothing here knows an error. What is wrong, unusual or large is *left to Python*: the expression gets no clauses, and
the caller gives it to the parser that can say why. What is read here means exactly what that parser would say.
"""
