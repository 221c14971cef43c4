"""Attacks on a hub, each in a file of its own, while a good client measures.

``make attack``, a part of ``make test-all``, runs all of them. ``make test-attack``, which CI runs,
gives each attack of ``SHORT`` less than half a second. A file in ``cases`` is one attack (floods
share one):

- its docstring says what the client does;
- ``ITEM`` is the number of the class of attacks that it belongs to;
- ``MEMORY_MIB`` is by how much the hub may grow meanwhile, and what that follows from;
- ``attack(target)`` runs in a process of its own until that is killed, or ends before;
- ``look(target)``, plain or a coroutine, where it is there, runs meanwhile, and gives what is not
  as it should be;
- ``logged(lines, seconds)``, where it is there, is given what the hub has logged meanwhile, and in
  how long, and gives what is not as it should be of that.

In every attack, of the good calls 99 in 100 take less than ``P99_MS``, none more than
``LONGEST_MS``, and no good link is lost. A machine that others use, too, holds up everybody now and
then: an attack that does not hold is tried again, up to ``TRIES`` times. The short run looks for
hubs that stand still, on whatever machine: there a good call may take longer by ``CALM_FACTOR``
times what the longest took while nobody attacked, in the same processes. A hub that stands still
does so for all of an attack, and for two seconds when it is tried again.
"""

from __future__ import annotations

P99_MS = 5.0
LONGEST_MS = 50.0
TRIES = 5
CALM_FACTOR = 3.0

SHORT = (
    "begun_compressed",
    "borrowed_references",
    "call_flood",
    "forged_announcements",
    "forged_user",
    "hashed_keys",
    "hostile_hub",
    "http_begun_bodies",
    "silent_crowd",
    "slow_reader",
    "stolen_calls",
    "web_fragment_flood",
    "wrong_tokens",
)
"""Attacks of the short run, one for each thing that a hub guards: memory of payloads, keys of
objects, its loop, the directory, identities, hash tables, HTTP, connections, queues of a link,
permissions, WebSocket, tokens, and the hubs that it joins.
"""
