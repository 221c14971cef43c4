//! Current actor of a thread: an ask reads it to find its asker, and a stop to find that it would
//! stop itself.

use std::cell::Cell;

use crate::actor::ActorId;
use crate::core::Core;

thread_local! {
    static CURRENT: Cell<(Option<ActorKey>, bool)> = const { Cell::new((None, false)) };
}

/// An actor among those of all engines of this process: ids are given by each engine anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorKey {
    pub(crate) engine: u64,
    pub(crate) id: ActorId,
}

/// The actor whose turn it is on this thread.
pub fn actor() -> Option<ActorKey> {
    CURRENT.get().0
}

/// The same, if it is one of this engine.
pub(crate) fn actor_of(core: &Core) -> Option<ActorId> {
    actor().filter(|key| key.engine == core.number).map(|key| key.id)
}

/// The actor of this engine in whose handler this thread is, if it handles one message at a time.
pub(crate) fn handling(core: &Core) -> Option<ActorId> {
    actor_of(core).filter(|_| is_handling())
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
