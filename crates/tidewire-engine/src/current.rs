//! Which actor the present thread runs, so that an ask knows who waits and a stop knows that it stops itself.

use std::cell::Cell;

use crate::actor::ActorId;

thread_local! {
    static CURRENT: Cell<(Option<ActorId>, bool)> = const { Cell::new((None, false)) };
}

/// The actor whose turn it is on this thread.
pub fn actor() -> Option<ActorId> {
    CURRENT.get().0
}

/// The actor in whose handler this thread is, if it handles one message at a time.
pub(crate) fn handling() -> Option<ActorId> {
    let (actor, handling) = CURRENT.get();
    actor.filter(|_| handling)
}

/// Says whether the present actor is inside its handler.
pub(crate) fn set_handling(handling: bool) {
    CURRENT.set((CURRENT.get().0, handling));
}

/// Runs `what` as if in the handler of `actor`: for handlers that an event loop runs outside of the actor's turns.
pub fn acting_as<R>(actor: ActorId, what: impl FnOnce() -> R) -> R {
    let _entered = enter(actor);
    what()
}

/// Forgets which actor the thread that forked was running.
pub(crate) fn reset() {
    CURRENT.set((None, false));
}

/// Makes `actor` the present one until the guard is dropped.
pub(crate) fn enter(actor: ActorId) -> Entered {
    Entered { before: CURRENT.replace((Some(actor), true)) }
}

pub(crate) struct Entered {
    before: (Option<ActorId>, bool),
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}
