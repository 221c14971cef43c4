"""Links: a node that joins a hub, or is one.

``connection.py`` is the link of one node: its subscriptions and its inbound messages. ``remote.py``
is the route to an instance of a service in another process, ``service_endpoint.py`` runs the
inbound calls of local instances. ``discovery.py`` tracks the services of other nodes, and
``announcements.py`` reads the announcements of the hub. ``addresses.py`` checks URLs.
"""
