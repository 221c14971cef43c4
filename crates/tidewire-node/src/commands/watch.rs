//! Shared watch for changes of command records in this process.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Instant;

use tidewire_backend::home::{Entry, Home, HomeResult, Watch};
use tidewire_engine::raw::Mutex;
use tidewire_proto::subject::Pattern;

use super::record::{PAGE, QUEUE, WAIT, WAIT_US, state_key};
use crate::inline_task::InlineTask;
use crate::pending::ValueSlot;

const STATE: &str = ".state";

/// Shared watch of the callers that wait for changes of records. A watch of a single record costs
/// the storage backend as much as a watch of all, and a NATS server keeps each watch for a while.
/// The one watch ends once no caller has waited for as long as a watch takes.
pub(super) struct CommandWatch {
    home: Arc<dyn Home>,
    state: Mutex<WatchState>,
}

struct WatchState {
    /// The waiting callers by the id of the record.
    waiting: HashMap<String, Vec<Arc<RecordSlot>>>,
    is_followed: bool,
    /// When the last caller left.
    left_at: Instant,
}

/// Slot for the newest change of a record, or the end of the watch.
type RecordSlot = ValueSlot<HomeResult<Entry>>;

/// The changes of one record, until it is dropped.
pub(super) struct RecordChanges {
    watch: Arc<CommandWatch>,
    id: String,
    after: u64,
    has_looked: bool,
    slot: Arc<RecordSlot>,
}

impl RecordChanges {
    /// Waits for the newest entry of the record after the one before. None: the record is not
    /// there.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> HomeResult<Option<Entry>> {
        if !self.has_looked {
            // The watch does not repeat changes from before the call.
            let found = self.watch.home.get(QUEUE, state_key(&self.id)?, None).await?;
            self.has_looked = true;
            match found {
                Some(entry) if entry.revision <= self.after => {}
                found => return Ok(self.seen(found)),
            }
        }
        loop {
            let entry = poll_fn(|context| self.slot.poll(context)).await?;
            if entry.revision > self.after {
                return Ok(self.seen(Some(entry)));
            }
        }
    }

    fn seen(&mut self, found: Option<Entry>) -> Option<Entry> {
        self.after = found.as_ref().map_or(self.after, |entry| entry.revision);
        found
    }
}

impl Drop for RecordChanges {
    fn drop(&mut self) {
        let mut state = self.watch.state.lock();
        if let Some(slots) = state.waiting.get_mut(&self.id) {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
            if slots.is_empty() {
                state.waiting.remove(&self.id);
            }
        }
        state.left_at = Instant::now();
    }
}

impl CommandWatch {
    pub fn new(home: Arc<dyn Home>) -> Arc<Self> {
        let state = WatchState { waiting: HashMap::new(), is_followed: false, left_at: Instant::now() };
        Arc::new(Self { home, state: Mutex::new(state) })
    }

    /// The entries of a record that are newer than a revision.
    pub fn changes(self: &Arc<Self>, id: &str, after: u64) -> RecordChanges {
        let slot = Arc::<RecordSlot>::default();
        let is_followed = {
            let mut state = self.state.lock();
            state.waiting.entry(id.to_owned()).or_default().push(Arc::clone(&slot));
            std::mem::replace(&mut state.is_followed, true)
        };
        if !is_followed {
            InlineTask::spawn(Box::pin(Arc::clone(self).follow(after)));
        }
        RecordChanges { watch: Arc::clone(self), id: id.to_owned(), after, has_looked: false, slot }
    }

    /// Watches all records for as long as a caller waits.
    async fn follow(self: Arc<Self>, mut after: u64) {
        let filter = Pattern::new("*.state").expect("it is a pattern");
        while self.is_wanted() {
            let watch = Watch { filter: filter.clone(), after, max: PAGE, wait_us: WAIT_US };
            match self.home.watch(QUEUE, watch).await {
                Ok(changes) => {
                    after = changes.upto;
                    changes.entries.into_iter().for_each(|entry| self.send(&entry));
                }
                Err(error) => {
                    let mut state = self.state.lock();
                    state.is_followed = false;
                    let slots: Vec<_> = state.waiting.values().flatten().map(Arc::clone).collect();
                    drop(state);
                    return slots.iter().for_each(|slot| slot.replace(Err(error.clone())));
                }
            }
        }
    }

    fn is_wanted(&self) -> bool {
        let mut state = self.state.lock();
        state.is_followed = !state.waiting.is_empty() || state.left_at.elapsed() < WAIT;
        state.is_followed
    }

    /// Sends an entry to the callers that wait for its record.
    fn send(&self, entry: &Entry) {
        let Some(id) = entry.key.as_str().strip_suffix(STATE) else { return };
        let slots = self.state.lock().waiting.get(id).cloned().unwrap_or_default();
        slots.iter().for_each(|slot| slot.replace(Ok(entry.clone())));
    }
}
