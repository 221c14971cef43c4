"""Functions, objects and streams of one node, called from another.

``given`` is what a node has given to others, ``held`` what it has of others; ``references`` joins
the two; ``door`` takes calls in, ``proxy`` makes them. The form on the wire is in
``spec/values.md``.
"""
