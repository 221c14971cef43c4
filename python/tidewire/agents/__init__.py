"""Agents: actors that are registered with an id, a type and capabilities, and talk in messages of
known kinds.

``message.py`` is what travels, ``form.py`` its written forms; ``agent.py`` is what users hold,
``agent_state.py`` what stands behind it; ``addresses.py`` is what a call sends and to whom,
``send_batch.py`` and ``retrying_request.py`` how it ends, ``blocking.py`` the same for plain
threads; ``directory.py`` finds agents; ``handlers.py`` finds the handler of a message;
``intake.py`` runs it. ``agent_pool.py`` is the agent of a pool, ``in_worker.py`` the one of each
worker.
"""
