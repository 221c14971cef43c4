"""Links: a node that joins a hub, or is one.

``connection.py`` is the link of one node: what it subscribes to there and hands in from there.
``remote.py`` is the way to an instance of a service in another process, ``service_endpoint.py``
runs the calls that come in for those of this one, ``discovery.py`` follows which services there
are, and ``announcements.py`` reads what the hub says of them. ``addresses.py`` says which URLs are
allowed.
"""
