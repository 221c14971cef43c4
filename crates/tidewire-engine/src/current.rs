//! Current actor of a thread: an ask reads it to find its asker, and a stop to find that it would
//! stop itself.

use std::cell::Cell;

use crate::actor::id::{ActorId, ActorKey};

thread_local! {
    static CURRENT: Cell<(Option<ActorKey>, bool)> = const { Cell::new((None, false)) };
}

/// The actor whose turn it is on this thread.
pub fn actor() -> Option<ActorKey> {
    CURRENT.get().0
}

/// The same, if it is one of the engine with this number.
pub(crate) fn actor_of(engine: u64) -> Option<ActorId> {
    actor().filter(|key| key.engine == engine).map(|key| key.id)
}

/// The actor of this engine in whose handler this thread is, if it handles one message at a time.
pub(crate) fn handling(engine: u64) -> Option<ActorId> {
    actor_of(engine).filter(|_| is_handling())
}

/// True while this thread is inside the handler of the present actor.
pub(crate) fn is_handling() -> bool {
    CURRENT.get().1
}

/// Says whether the present actor is inside its handler.
pub(crate) fn set_handling(handling: bool) {
    CURRENT.set((CURRENT.get().0, handling));
}

/// Runs `what` as if in the handler of `actor`: for handlers that an event loop runs outside of the
/// actor's turns.
pub fn acting_as<R>(actor: ActorKey, what: impl FnOnce() -> R) -> R {
    let _entered = enter(actor);
    what()
}

/// Forgets which actor the thread that forked was running.
pub(crate) fn reset() {
    CURRENT.set((None, false));
}

/// Makes `actor` the present one until the guard is dropped.
pub(crate) fn enter(actor: ActorKey) -> Entered {
    Entered { before: CURRENT.replace((Some(actor), true)) }
}

pub(crate) struct Entered {
    before: (Option<ActorKey>, bool),
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
