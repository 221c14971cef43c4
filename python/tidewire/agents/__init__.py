"""Agents: actors with an id, a type and capabilities, which exchange messages of known kinds.

``message.py`` is the message, ``form.py`` its encodings; ``agent.py`` is the public agent,
``agent_state.py`` its inner state. ``addresses.py`` resolves the recipients of a call,
``send_batch.py`` and ``retrying_request.py`` complete it. ``directory.py`` finds agents;
``handlers.py`` finds the handler of a message; ``receiver.py`` runs it. ``agent_pool.py`` is the
agent of a pool, ``in_worker.py`` the agent of each worker.
"""
