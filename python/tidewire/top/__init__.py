"""``tidewire top``: a node serves its statistics as ``$sys``, and a table in a terminal shows what
it answered.

In the node: ``service.py`` answers, with what ``answer.py`` makes of the statistics. In the
command: ``command.py`` looks again and again, ``discovery.py`` finds nodes and calls them,
``rates.py`` compares two looks, ``screen.py`` draws. Both: ``sockets.py`` says where sockets lie
and who may use them.
"""
