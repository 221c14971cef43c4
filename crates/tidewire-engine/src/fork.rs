//! Fork support: the child of a fork forgets the state of its engines. The forking thread may be a
//! worker in the middle of a turn.

/// To be called in the child of a fork, by its only thread, after [`forked`](tidewire_sync::forked)
/// and before it uses this crate again. Engines of the parent must not be used there, and not be
/// dropped; new ones work.
pub fn leave_parent() {
    crate::dispatch::leave_seat();
    crate::current::reset();
    crate::dispatch::threads::reset();
    crate::reply::slot_cache::reset();
}
