//! Calls that wait for something: events to deliver or to read, changes of a bucket, leases.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use tidewire_backend::home::{
    Changes, Delivery, Fetch, Grant, HomeError, HomeResult, Page, Read, Start, Teller, Watch,
};

use super::work::{Doing, Shared};
use crate::folder::Leased;

type Consumer = (String, String);

/// Who waits for what.
pub struct Waiting {
    fetches: BTreeMap<Consumer, VecDeque<Waits<Fetch, Vec<Delivery>>>>,
    reads: BTreeMap<String, Vec<Waits<Read, Page>>>,
    watches: BTreeMap<String, Vec<Waits<Watch, Changes>>>,
    leases: BTreeMap<u64, (String, Teller<Grant>)>,
    next_ticket: u64,
    /// Where there may be something by now.
    ready_consumers: BTreeSet<Consumer>,
    ready_streams: BTreeSet<String>,
    ready_buckets: BTreeSet<String>,
    shared: Arc<Shared>,
}

/// A call that waits until then.
struct Waits<C, T> {
    call: C,
    until_us: u64,
    teller: Teller<T>,
}

impl Waiting {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            fetches: BTreeMap::new(),
            reads: BTreeMap::new(),
            watches: BTreeMap::new(),
            leases: BTreeMap::new(),
            next_ticket: 1,
            ready_consumers: BTreeSet::new(),
            ready_streams: BTreeSet::new(),
            ready_buckets: BTreeSet::new(),
            shared,
        }
    }

    pub fn fetch(&mut self, consumer: Consumer, call: Fetch, now_us: u64, teller: Teller<Vec<Delivery>>) {
        let until_us = now_us.saturating_add(call.wait_us);
        self.fetches.entry(consumer.clone()).or_default().push_back(Waits { call, until_us, teller });
        self.ready_consumers.insert(consumer);
    }

    pub fn read(&mut self, stream: String, call: Read, now_us: u64, teller: Teller<Page>) {
        let until_us = now_us.saturating_add(call.wait_us);
        self.reads.entry(stream.clone()).or_default().push(Waits { call, until_us, teller });
        self.ready_streams.insert(stream);
    }

    pub fn watch(&mut self, bucket: String, call: Watch, now_us: u64, teller: Teller<Changes>) {
        let until_us = now_us.saturating_add(call.wait_us);
        self.watches.entry(bucket.clone()).or_default().push(Waits { call, until_us, teller });
        self.ready_buckets.insert(bucket);
    }

    /// A ticket for a call that may have to wait for a lease.
    pub fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }

    pub fn lease(&mut self, ticket: u64, name: String, teller: Teller<Grant>) {
        self.leases.insert(ticket, (name, teller));
    }

    /// A stream has new events.
    pub fn published(&mut self, stream: &str) {
        let waits = |(consumer, _): (&Consumer, _)| (consumer.0 == stream).then(|| consumer.clone());
        self.ready_consumers.extend(self.fetches.iter().filter_map(waits));
        if self.reads.contains_key(stream) {
            self.ready_streams.insert(stream.to_owned());
        }
    }

    /// A consumer may have something ready.
    pub fn moved(&mut self, stream: &str, consumer: &str) {
        let key = (stream.to_owned(), consumer.to_owned());
        if self.fetches.contains_key(&key) {
            self.ready_consumers.insert(key);
        }
    }

    /// A bucket has changed.
    pub fn changed(&mut self, bucket: &str) {
        if self.watches.contains_key(bucket) {
            self.ready_buckets.insert(bucket.to_owned());
        }
    }

    /// A stream or bucket is gone: whoever waits for it is told.
    pub fn gone(&mut self, name: &str) {
        self.published(name);
        self.changed(name);
    }

    pub fn is_awaited(&self, stream: &str, consumer: &str) -> bool {
        // Looked up by a pair of references, which a map of pairs of texts can't.
        self.fetches.iter().any(|((of, name), _)| of == stream && name == consumer)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready_consumers.is_empty() || !self.ready_streams.is_empty() || !self.ready_buckets.is_empty()
    }

    /// When the next wait is over.
    pub fn next_us(&self) -> u64 {
        let fetches = self.fetches.values().flatten().map(|waits| waits.until_us);
        let reads = self.reads.values().flatten().map(|waits| waits.until_us);
        let watches = self.watches.values().flatten().map(|waits| waits.until_us);
        fetches.chain(reads).chain(watches).min().unwrap_or(u64::MAX)
    }

    /// The folder has to be opened anew, or is closed: nobody waits any more.
    pub fn lose(&mut self, error: &HomeError) {
        let Self { fetches, reads, watches, leases, .. } = self;
        std::mem::take(fetches).into_values().flatten().for_each(|waits| drop(waits.teller.tell(Err(error.clone()))));
        std::mem::take(reads).into_values().flatten().for_each(|waits| drop(waits.teller.tell(Err(error.clone()))));
        std::mem::take(watches).into_values().flatten().for_each(|waits| drop(waits.teller.tell(Err(error.clone()))));
        std::mem::take(leases).into_values().for_each(|(_, teller)| drop(teller.tell(Err(error.clone()))));
        self.ready_consumers.clear();
        self.ready_streams.clear();
        self.ready_buckets.clear();
    }

    /// Marks where a wait is over.
    fn mark_late(&mut self, now_us: u64) {
        let late = self.fetches.iter().filter(|(_, all)| all.iter().any(|waits| waits.until_us <= now_us));
        self.ready_consumers.extend(late.map(|(consumer, _)| consumer.clone()));
        let late = self.reads.iter().filter(|(_, all)| all.iter().any(|waits| waits.until_us <= now_us));
        self.ready_streams.extend(late.map(|(stream, _)| stream.clone()));
        let late = self.watches.iter().filter(|(_, all)| all.iter().any(|waits| waits.until_us <= now_us));
        self.ready_buckets.extend(late.map(|(bucket, _)| bucket.clone()));
    }
}

impl Doing<'_> {
    /// Answers with what is on the disk, at the latest when it is.
    pub fn show<T: Send + 'static>(&mut self, teller: Teller<T>, result: HomeResult<T>) {
        if self.folder.has_urgent() { self.keep(teller, result) } else { self.tell(teller, result) }
    }

    /// Answers after the next sync.
    pub fn keep<T: Send + 'static>(&mut self, teller: Teller<T>, result: HomeResult<T>) {
        self.synced.push(Box::new(move |synced| drop(teller.tell(synced.and(result)))));
    }

    /// Answers after the next write.
    fn tell<T: Send + 'static>(&mut self, teller: Teller<T>, result: HomeResult<T>) {
        self.soon.push(Box::new(move |written| drop(teller.tell(written.and(result)))));
    }

    /// Does what is due.
    pub fn tick(&mut self) -> HomeResult<()> {
        let now_us = self.now_us;
        let waiting = &mut *self.waiting;
        if self.folder.next_consumer_us().is_some_and(|at| at <= now_us) {
            let due = self.folder.tick_consumers(now_us, &|stream, consumer| waiting.is_awaited(stream, consumer));
            due.iter().for_each(|(stream, consumer)| waiting.moved(stream, consumer));
        }
        for bucket in self.folder.tick_buckets(now_us) {
            waiting.changed(&bucket);
        }
        let leased = self.folder.tick_leases(now_us);
        leased.into_iter().for_each(|leased| self.leased(leased));
        self.waiting.mark_late(now_us);
        self.folder.release_due(now_us).map(drop)
    }

    /// A call that waited for a lease has its answer.
    fn leased(&mut self, (ticket, result): Leased) {
        let Some((name, teller)) = self.waiting.leases.remove(&ticket) else { return };
        match &result {
            // Nobody looks any more: the next one gets it.
            Ok(grant) if !teller.is_wanted() => {
                self.folder.release(&name, grant.fence, self.now_us);
                let next = self.folder.tick_leases(self.now_us);
                next.into_iter().for_each(|leased| self.leased(leased));
            }
            _ => self.keep(teller, result),
        }
    }

    /// Gives those who wait what there is for them.
    pub fn serve(&mut self) {
        for consumer in std::mem::take(&mut self.waiting.ready_consumers) {
            self.serve_consumer(&consumer);
        }
        for stream in std::mem::take(&mut self.waiting.ready_streams) {
            self.serve_readers(&stream);
        }
        for bucket in std::mem::take(&mut self.waiting.ready_buckets) {
            self.serve_watchers(&bucket);
        }
    }

    fn serve_consumer(&mut self, consumer: &Consumer) {
        let Some(mut all) = self.waiting.fetches.remove(consumer) else { return };
        let now_us = self.now_us;
        while let Some(waits) = all.pop_front() {
            if !waits.teller.is_wanted() {
                continue;
            }
            let fetched = self.folder.fetch(&consumer.0, &consumer.1, waits.call, now_us);
            let result = match fetched {
                Ok(fetched) if fetched.deliveries.is_empty() && (fetched.more || waits.until_us > now_us) => {
                    if fetched.more {
                        self.waiting.ready_consumers.insert(consumer.clone());
                    }
                    all.push_front(waits);
                    break;
                }
                Ok(fetched) => Ok(fetched.deliveries),
                Err(error) => Err(error),
            };
            self.deliver(consumer.clone(), waits.teller, result);
        }
        // Those behind the one that found nothing may have waited for long enough.
        all.retain(|waits| waits.teller.is_wanted());
        let (late, rest): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|waits| waits.until_us <= now_us);
        let more = self.waiting.ready_consumers.contains(consumer);
        let mut rest = rest;
        for waits in late.into_iter().rev() {
            if more { rest.push_front(waits) } else { self.tell(waits.teller, Ok(Vec::new())) }
        }
        if !rest.is_empty() {
            self.waiting.fetches.insert(consumer.clone(), rest);
        }
    }

    /// Answers a fetch; if nobody looks any more, its deliveries go back.
    fn deliver(&mut self, consumer: Consumer, teller: Teller<Vec<Delivery>>, result: HomeResult<Vec<Delivery>>) {
        let shared = Arc::clone(&self.waiting.shared);
        self.soon.push(Box::new(move |written| {
            let Err(Ok(unseen)) = teller.tell(written.and(result)) else { return };
            let _closed = shared.call(Box::new(move |doing| {
                let Ok(doing) = doing else { return };
                doing.folder.give_back(&consumer.0, &consumer.1, &unseen, doing.now_us);
                doing.waiting.moved(&consumer.0, &consumer.1);
            }));
        }));
    }

    fn serve_readers(&mut self, stream: &str) {
        for mut waits in self.waiting.reads.remove(stream).unwrap_or_default() {
            if !waits.teller.is_wanted() {
                continue;
            }
            match self.folder.read(stream, &waits.call, self.now_us) {
                Ok(page) if page.events.is_empty() && waits.call.stop.is_none_or(|stop| page.next <= stop) => {
                    let looked_at_all = page.next > page.last;
                    if looked_at_all && waits.until_us <= self.now_us {
                        self.tell(waits.teller, Ok(page));
                        continue;
                    }
                    if !looked_at_all {
                        self.waiting.ready_streams.insert(stream.to_owned());
                    }
                    waits.call.start = Start::Sequence(page.next);
                    self.waiting.reads.entry(stream.to_owned()).or_default().push(waits);
                }
                result => self.tell(waits.teller, result),
            }
        }
    }

    fn serve_watchers(&mut self, bucket: &str) {
        for waits in self.waiting.watches.remove(bucket).unwrap_or_default() {
            if !waits.teller.is_wanted() {
                continue;
            }
            match self.folder.changes(bucket, &waits.call) {
                Ok(changes) if changes.entries.is_empty() && waits.until_us > self.now_us => {
                    self.waiting.watches.entry(bucket.to_owned()).or_default().push(waits);
                }
                result => self.show(waits.teller, result),
            }
        }
    }
}
