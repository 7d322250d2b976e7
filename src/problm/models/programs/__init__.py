"""Functions of other libraries as expressions, read from the programs that those libraries record.

Calls the expressions of `problm.models`; the library is an argument. Start with
`problm.models.programs.jax_program`.
"""
