"""Services: named sets of methods and event handlers, called through typed clients.

What a service is: ``declare.py`` marks and finds its methods, ``methods.py`` is one of them,
``type_hints.py`` reads its annotations, ``argument_check.py`` its arguments, ``schema.py`` and
``info.py`` what others see of it. How it is served: ``worker_pool.py`` begins, ``instance.py`` runs
the calls (``thread_workers.py`` those of plain functions, ``stream_writer.py`` streams),
``context.py`` is what a handler sees of its call. How it is called: ``proxy.py`` is what users
hold, ``calls.py`` what a method call gives, ``options.py`` how it is made; ``registry.py`` knows
the instances, ``policies.py`` chooses one. ``instance_transport.py`` is the way to an instance;
``local.py`` is the one within a process. ``channel.py`` moves the items of a stream,
``async_items.py`` those of an argument.
"""
