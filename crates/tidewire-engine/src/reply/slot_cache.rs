//! Reply slots of ended asks, which a thread caches for its next asks.
//!
//! A cached slot keeps its deadline registered in its engine. The engine releases an idle slot the
//! next time that it looks at the deadlines.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use crate::ask_slot::AskSlot;
use crate::core::Core;
use crate::timers::deadlines::DeadlineKey;

/// Most slots that one thread caches. The oldest goes first.
const KEEP: usize = 64;
/// Number of the newest cached slots that a lookup checks.
const LOOKS: usize = 4;

thread_local! {
    static SPARES: RefCell<VecDeque<CachedSlot>> = const { RefCell::new(VecDeque::new()) };
}

/// One slot that rests, and its place among the deadlines.
struct CachedSlot {
    /// Empty once it was taken to be used.
    slot: Option<Arc<dyn Recyclable>>,
    key: DeadlineKey,
}

trait Recyclable: Any + Send + Sync {
    fn home(&self) -> &Weak<Core>;
}

impl<T: Send + 'static> Recyclable for AskSlot<T> {
    fn home(&self) -> &Weak<Core> {
        &self.home
    }
}

impl Drop for CachedSlot {
    fn drop(&mut self) {
        if let Some(core) = self.slot.take().and_then(|slot| slot.home().upgrade()) {
            core.timers.unwatch(self.key);
        }
    }
}

/// A slot of this type and engine that nobody else has, if this thread keeps one.
pub(crate) fn take<T: Send + 'static>(core: &Arc<Core>) -> Option<(Arc<AskSlot<T>>, DeadlineKey)> {
    let spare = SPARES.try_with(|spares| {
        let mut spares = spares.try_borrow_mut().ok()?;
        let fits = |spare: &CachedSlot| {
            spare.slot.as_ref().is_some_and(|slot| {
                std::ptr::eq(slot.home().as_ptr(), Arc::as_ptr(core)) && (&**slot as &dyn Any).is::<AskSlot<T>>()
            })
        };
        let at = (0..spares.len()).rev().take(LOOKS).find(|at| fits(&spares[*at]))?;
        spares.remove(at)
    });
    let mut spare = spare.ok().flatten()?;
    let slot = spare.slot.take()? as Arc<dyn Any + Send + Sync>;
    Some((slot.downcast().ok()?, spare.key))
}

/// Keeps a slot whose ask is over, and that [nobody else has](AskSlot::is_free).
pub(crate) fn keep<T: Send + 'static>(slot: Arc<AskSlot<T>>, key: DeadlineKey) {
    let spare = CachedSlot { slot: Some(slot), key };
    // The evicted slot is dropped after the list is given back. At the end of a thread, the new
    // slot itself is dropped.
    let _gone = SPARES.try_with(|spares| {
        let Ok(mut spares) = spares.try_borrow_mut() else { return Some(spare) };
        let old = (spares.len() >= KEEP).then(|| spares.pop_front()).flatten();
        spares.push_back(spare);
        old
    });
}

/// In the child of a fork: the engines of the slots stayed in the parent, and their locks may be
/// taken for ever.
pub(crate) fn reset() {
    let _ = SPARES.try_with(|spares| {
        if let Ok(mut spares) = spares.try_borrow_mut() {
            let _leaked = ManuallyDrop::new(std::mem::take(&mut *spares));
        }
    });
}
