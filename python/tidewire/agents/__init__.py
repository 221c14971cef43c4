"""Agents: actors that are registered with an id, a type and capabilities, and talk in messages of
known kinds.

``message.py`` is the message, ``form.py`` its written forms; ``agent.py`` is the public agent,
``agent_state.py`` its inner state. ``addresses.py`` resolves the recipients of a call,
``send_batch.py`` and ``retrying_request.py`` complete it, ``blocking_agent.py`` does the same for
plain threads. ``directory.py`` finds agents; ``handlers.py`` finds the handler of a message;
``intake.py`` runs it. ``agent_pool.py`` is the agent of a pool, ``in_worker.py`` the one of each
worker.
"""
