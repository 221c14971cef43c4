"""Functions, objects and streams of one node, called from another.

``references`` has the exports of a node, ``import_table`` its imports. ``export_endpoint`` takes
inbound calls, ``proxy`` makes outbound ones. The form on the wire is in ``spec/values.md``.
"""
