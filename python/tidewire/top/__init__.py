"""``tidewire top``: a node serves its statistics as ``$sys``, and the command shows them as tables
in a terminal.

In the node, ``service.py`` serves the statistics, which ``answer.py`` condenses. In the command,
``discovery.py`` finds and calls nodes, ``command.py`` polls one, ``rates.py`` compares two samples,
and ``screen.py`` renders them. ``sockets.py``, for both, has the paths and permissions of sockets.
"""
