//! Small numbers for threads, so that an actor can note on which one it runs with one store.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;

use tidewire_sync::Mutex;

use tidewire_sync::PerProcess;

static NAMES: PerProcess<Mutex<Names>> = PerProcess::new();

#[derive(Default)]
struct Names {
    last: u32,
    names: BTreeMap<u32, Arc<str>>,
}

/// Takes the number back when the thread ends.
struct ThreadNumber(Cell<u32>);

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        NAMES.get().lock().names.remove(&self.0.get());
    }
}

thread_local! {
    static BADGE: ThreadNumber = const { ThreadNumber(Cell::new(0)) };
}

/// The number of this thread.
#[inline]
pub(crate) fn number() -> u32 {
    BADGE.try_with(|badge| if badge.0.get() == 0 { register(badge) } else { badge.0.get() }).unwrap_or(0)
}

/// The name of the thread with this number, while it lives.
pub(crate) fn name(number: u32) -> Option<Arc<str>> {
    NAMES.get().lock().names.get(&number).cloned()
}

/// Forgets the number of the thread that forked: it is a thread of the parent's.
pub(crate) fn reset() {
    drop(NAMES.get().lock());
    let _ = BADGE.try_with(|badge| badge.0.set(0));
}

#[cold]
fn register(badge: &ThreadNumber) -> u32 {
    let mut names = NAMES.get().lock();
    names.last = names.last.wrapping_add(1).max(1);
    let number = names.last;
    names.names.insert(number, Arc::from(std::thread::current().name().unwrap_or("unnamed")));
    badge.0.set(number);
    number
}
