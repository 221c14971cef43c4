"""Services: named sets of methods and event handlers, called through typed clients.

Declaration: ``declare.py`` marks and finds the methods, ``methods.py`` is one of them,
``type_hints.py`` reads its annotations, ``argument_check.py`` checks its arguments.
``schema.py`` and ``info.py`` describe a service to others.

Serving: ``serve.py`` begins, ``instance.py`` runs the calls, ``thread_workers.py`` those of
plain functions, ``stream_writer.py`` writes streams. ``context.py`` is the handler's view of
its call.

Calling: ``client.py`` is the typed client, ``calls.py`` the result of a method call,
``options.py`` its options. ``registry.py`` knows the instances, ``policies.py`` chooses one.
``instance_transport.py`` is the route to an instance; ``local.py`` is the one within a process.
``channel.py`` moves the items of a stream, ``argument_streams.py`` those of an argument.
"""
