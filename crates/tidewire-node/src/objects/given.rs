//! The export table of a node: a machine without clock, links and threads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;

use super::thing::Thing;
use crate::error::Error;

/// How long what was given in a call that is over waits for the word that its callee has got it.
const CLAIM: Duration = Duration::from_millis(limits::REMOTE_CLAIM_MS.default);
const OBJECTS_MAX: usize = limits::REMOTE_OBJECTS.max as usize;

/// One object that one node, the holder, has been given.
pub(crate) struct Entry {
    pub thing: Thing,
    holder: Arc<str>,
    /// The number of the holder's link, once it has called or claimed.
    origin: Option<u32>,
    lease: Duration,
    until: Instant,
    /// References to it that were given and not let go.
    given: u64,
    /// Calls of it, and calls whose argument it is, that are under way.
    busy: u32,
}

/// All that a node has given. What leaves it is handed out, to be dropped under no lock.
#[derive(Default)]
pub(crate) struct Given {
    entries: HashMap<Arc<str>, Entry>,
    known: HashMap<(Arc<str>, usize), Arc<str>>,
}

impl Given {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Gives something to a node, under a key that it was not given before; answers the key that it has there.
    pub fn give(&mut self, holder: &str, thing: Thing, key: &str, now: Instant) -> Result<Arc<str>, Error> {
        let same = (Arc::from(holder), thing.address());
        if let Some(known) = self.known.get(&same).cloned()
            && let Some(entry) = self.entries.get_mut(&known)
        {
            entry.given += 1;
            entry.until = now + entry.lease;
            return Ok(known);
        }
        if self.entries.len() >= OBJECTS_MAX {
            let text = format!(
                "remote_objects={OBJECTS_MAX}: so many functions and objects have been given to other nodes already: \
                 dispose of some, or give them shorter leases"
            );
            return Err(Error::new(ErrorCode::LimitExceeded, text));
        }
        let (key, lease): (Arc<str>, _) = (key.into(), thing.lease());
        let holder = Arc::clone(&same.0);
        let entry = Entry { thing, holder, origin: None, lease, until: now + lease, given: 1, busy: 0 };
        self.known.insert(same, Arc::clone(&key));
        self.entries.insert(Arc::clone(&key), entry);
        Ok(key)
    }

    /// What a node names; its lease begins anew.
    pub fn used(&mut self, key: &str, holder: &str, origin: u32, now: Instant) -> Result<&mut Entry, Error> {
        let is_of = |entry: &Entry| &*entry.holder == holder && entry.origin.is_none_or(|known| known == origin);
        let fits = |entry: &&mut Entry| entry.given > 0 && is_of(entry);
        let Some(entry) = self.entries.get_mut(key).filter(fits) else {
            let key = key.get(..8).unwrap_or(key);
            let text = format!(
                "{key}: this node has nothing of this key for {holder:?}: it was let go, its lease is over, or it was given to \
                 another node"
            );
            return Err(Error::new(ErrorCode::RemoteGone, text));
        };
        entry.origin = Some(origin);
        entry.until = now + entry.lease;
        Ok(entry)
    }

    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// A call of it, or with it, begins: its lease stands still.
    pub fn busy(&mut self, key: &str) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.busy += 1;
        }
    }

    /// Such a call has ended. Answers when its lease is over, or what is gone with it.
    pub fn idle(&mut self, key: &str, now: Instant) -> (Option<Instant>, Option<Entry>) {
        let Some(entry) = self.entries.get_mut(key) else { return (None, None) };
        entry.busy = entry.busy.saturating_sub(1);
        // Nobody may have read it: the call may have been given up before it was begun.
        entry.until = now + if entry.origin.is_some() { entry.lease } else { entry.lease.min(CLAIM) };
        let (until, is_gone) = (entry.until, entry.given == 0 && entry.busy == 0);
        if is_gone { (None, self.remove(key)) } else { (Some(until), None) }
    }

    /// Whether the holder has ever claimed or called it.
    pub fn is_claimed(&self, key: &str) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.origin.is_some())
    }

    /// The holder has let so many references go; what has none left is gone. While a call with it is under way its answer may still bring it back.
    pub fn release(&mut self, key: &str, holder: &str, count: u64) -> Option<Entry> {
        let entry = self.entries.get_mut(key).filter(|entry| &*entry.holder == holder)?;
        entry.given = entry.given.saturating_sub(count);
        if entry.given == 0 && entry.busy == 0 { self.remove(key) } else { None }
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let entry = self.entries.remove(key)?;
        self.known.remove(&(Arc::clone(&entry.holder), entry.thing.address()));
        Some(entry)
    }

    /// The node of a link has gone, and with it all that it held.
    pub fn left(&mut self, origin: u32) -> Vec<Entry> {
        self.remove_all(|entry| entry.origin == Some(origin))
    }

    /// Its owner lets it go, whoever holds it.
    pub fn dispose(&mut self, address: usize) -> Vec<Entry> {
        self.remove_all(|entry| entry.thing.address() == address)
    }

    /// Lets go whose lease is over, and answers when to look again.
    pub fn expire(&mut self, now: Instant) -> (Vec<Entry>, Option<Instant>) {
        let over = self.remove_all(|entry| entry.busy == 0 && entry.until <= now);
        (over, self.entries.values().filter(|entry| entry.busy == 0).map(|entry| entry.until).min())
    }

    fn remove_all(&mut self, which: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let keys: Vec<_> =
            self.entries.iter().filter(|(_, entry)| which(entry)).map(|(key, _)| Arc::clone(key)).collect();
        keys.iter().filter_map(|key| self.remove(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tidewire_proto::generated::errors::ErrorCode;

    use super::{CLAIM, Given};
    use crate::objects::thing::Thing;

    const LEASE: Duration = Duration::from_secs(600);

    #[test]
    fn the_same_object_has_one_key_for_each_node_and_goes_when_all_of_it_was_released() {
        let (mut given, thing, now) = (Given::default(), Thing::nothing(LEASE), Instant::now());
        assert_eq!(given.give("one", thing.clone(), "a", now).expect("room").as_ref(), "a");
        assert_eq!(given.give("one", thing.clone(), "b", now).expect("room").as_ref(), "a");
        assert_eq!(given.give("other", thing, "c", now).expect("room").as_ref(), "c");
        assert!(given.release("a", "other", 2).is_none() && given.release("a", "one", 1).is_none());
        assert!(given.release("a", "one", 1).is_some());
        assert_eq!(given.len(), 1);
    }

    #[test]
    fn what_was_released_during_a_call_with_it_can_come_back_but_not_be_called() {
        let (mut given, now) = (Given::default(), Instant::now());
        given.give("one", Thing::nothing(LEASE), "a", now).expect("room");
        given.busy("a");
        assert!(given.release("a", "one", 1).is_none() && given.get("a").is_some());
        assert!(given.used("a", "one", 1, now).is_err());
        assert!(given.idle("a", now).1.is_some() && given.get("a").is_none());
    }

    #[test]
    fn only_the_link_that_claimed_it_may_use_it() {
        let (mut given, now) = (Given::default(), Instant::now());
        given.give("one", Thing::nothing(LEASE), "a", now).expect("room");
        for (key, holder) in [("a", "other"), ("b", "one")] {
            let error = given.used(key, holder, 1, now).err().expect("it is not theirs");
            assert_eq!(error.code(), ErrorCode::RemoteGone);
        }
        assert!(given.used("a", "one", 7, now).is_ok() && given.used("a", "one", 8, now).is_err());
        assert_eq!((given.left(8).len(), given.left(7).len(), given.len()), (0, 1, 0));
    }

    #[test]
    fn a_lease_stands_still_during_calls_and_begins_anew_with_each_use() {
        let (mut given, begin) = (Given::default(), Instant::now());
        given.give("one", Thing::nothing(LEASE), "a", begin).expect("room");
        given.used("a", "one", 1, begin).expect("it was given");
        given.busy("a");
        assert!(given.expire(begin + 2 * LEASE).0.is_empty());
        let (until, gone) = given.idle("a", begin + 2 * LEASE);
        assert!(until == Some(begin + 3 * LEASE) && gone.is_none());
        assert!(given.used("a", "one", 1, begin + 5 * LEASE / 2).is_ok());
        let (over, next) = given.expire(begin + 3 * LEASE);
        assert_eq!((over.len(), next), (0, Some(begin + 7 * LEASE / 2)));
        assert_eq!(given.expire(begin + 7 * LEASE / 2).0.len(), 1);
    }

    #[test]
    fn what_nobody_has_read_when_its_call_is_over_is_let_go_soon() {
        let (mut given, begin) = (Given::default(), Instant::now());
        given.give("one", Thing::nothing(LEASE), "a", begin).expect("room");
        given.busy("a");
        assert_eq!(given.idle("a", begin).0, Some(begin + CLAIM));
        assert_eq!(given.expire(begin + CLAIM).0.len(), 1);
    }
}
