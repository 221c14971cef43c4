//! Waiting calls: fetches, reads, watches of buckets and acquisitions of leases.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tidewire_backend::home::{
    Changes, Delivery, Fetch, Grant, HomeError, HomeResult, Page, Read, Start, Teller, Watch,
};

use super::home_thread::{CallContext, Shared};
use super::wait_queue::{Parked, ParkedCall};
use crate::folder::Leased;

type Consumer = (String, String);

/// Calls that wait for events, entries or leases.
pub struct WaitingCalls {
    fetches: Parked<Consumer, Fetch, Vec<Delivery>>,
    reads: Parked<String, Read, Page>,
    watches: Parked<String, Watch, Changes>,
    leases: BTreeMap<u64, (String, Teller<Grant>)>,
    next_ticket: u64,
    shared: Arc<Shared>,
}

impl WaitingCalls {
    pub fn new(shared: Arc<Shared>) -> Self {
        let (fetches, reads, watches) = (Parked::new(), Parked::new(), Parked::new());
        Self { fetches, reads, watches, leases: BTreeMap::new(), next_ticket: 1, shared }
    }

    pub fn fetch(&mut self, consumer: Consumer, call: Fetch, now_us: u64, teller: Teller<Vec<Delivery>>) {
        let until_us = now_us.saturating_add(call.wait_us);
        self.fetches.push(consumer, ParkedCall { call, until_us, teller });
    }

    pub fn read(&mut self, stream: String, call: Read, now_us: u64, teller: Teller<Page>) {
        let until_us = now_us.saturating_add(call.wait_us);
        self.reads.push(stream, ParkedCall { call, until_us, teller });
    }

    pub fn watch(&mut self, bucket: String, call: Watch, now_us: u64, teller: Teller<Changes>) {
        let until_us = now_us.saturating_add(call.wait_us);
        self.watches.push(bucket, ParkedCall { call, until_us, teller });
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
        let first = (stream.to_owned(), String::new());
        self.fetches.wake_from(&first, |(of, _)| of == stream);
        self.reads.wake(&first.0);
    }

    /// A consumer may have something ready.
    pub fn moved(&mut self, stream: &str, consumer: &str) {
        self.fetches.wake(&(stream.to_owned(), consumer.to_owned()));
    }

    /// A bucket has changed.
    pub fn changed(&mut self, bucket: &str) {
        self.watches.wake(&bucket.to_owned());
    }

    /// A stream or bucket was deleted: its waiting calls are notified.
    pub fn wake_all(&mut self, name: &str) {
        self.published(name);
        self.changed(name);
    }

    pub fn is_awaited(&self, stream: &str, consumer: &str) -> bool {
        self.fetches.holds(&(stream.to_owned(), consumer.to_owned()))
    }

    pub fn has_ready(&self) -> bool {
        self.fetches.has_ready() || self.reads.has_ready() || self.watches.has_ready()
    }

    /// When the next wait is over.
    pub fn next_us(&self) -> u64 {
        self.fetches.next_us().min(self.reads.next_us()).min(self.watches.next_us())
    }

    /// Fails all waiting calls: the folder has to be reopened, or is closed.
    pub fn lose(&mut self, error: &HomeError) {
        self.fetches.lose(error);
        self.reads.lose(error);
        self.watches.lose(error);
        std::mem::take(&mut self.leases).into_values().for_each(|(_, teller)| drop(teller.tell(Err(error.clone()))));
    }

    /// Marks where a wait is over.
    fn wake_late(&mut self, now_us: u64) {
        self.fetches.wake_late(now_us);
        self.reads.wake_late(now_us);
        self.watches.wake_late(now_us);
    }
}

impl CallContext<'_> {
    /// Answers at once, or after the next sync if changes are not synced yet.
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

    /// Processes due timeouts.
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
        self.waiting.wake_late(now_us);
        self.folder.release_due(now_us)?;
        self.folder.beat(now_us, self.wall_us)
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
            _ => self.grant(name, teller, result),
        }
    }

    /// Answers a caller with its lease after the next sync. A caller that is gone by then gives the
    /// lease back.
    pub fn grant(&mut self, name: String, teller: Teller<Grant>, result: HomeResult<Grant>) {
        let shared = Arc::clone(&self.waiting.shared);
        self.synced.push(Box::new(move |synced| {
            let Err(Ok(unseen)) = teller.tell(synced.and(result)) else { return };
            let _closed = shared.call(Box::new(move |doing| {
                if let Ok(doing) = doing {
                    doing.folder.release(&name, unseen.fence, doing.now_us);
                }
            }));
        }));
    }

    /// Serves waiting calls with ready results.
    pub fn serve(&mut self) {
        for consumer in self.waiting.fetches.take_ready() {
            self.serve_consumer(&consumer);
        }
        for stream in self.waiting.reads.take_ready() {
            self.serve_readers(&stream);
        }
        for bucket in self.waiting.watches.take_ready() {
            self.serve_watchers(&bucket);
        }
    }

    fn serve_consumer(&mut self, consumer: &Consumer) {
        let Some(mut all) = self.waiting.fetches.take(consumer) else { return };
        let now_us = self.now_us;
        while let Some(waits) = all.pop_front() {
            if !waits.teller.is_wanted() {
                continue;
            }
            let fetched = self.folder.fetch(&consumer.0, &consumer.1, waits.call, now_us);
            let result = match fetched {
                Ok(fetched) if fetched.deliveries.is_empty() && (fetched.more || waits.until_us > now_us) => {
                    if fetched.more {
                        self.waiting.fetches.again(consumer.clone());
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
        let more = self.waiting.fetches.is_ready(consumer);
        let mut rest = rest;
        for waits in late.into_iter().rev() {
            if more { rest.push_front(waits) } else { self.tell(waits.teller, Ok(Vec::new())) }
        }
        self.waiting.fetches.park(consumer.clone(), rest);
    }

    /// Answers a fetch; if its caller has left, the deliveries are released.
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

    fn serve_readers(&mut self, stream: &String) {
        let mut rest = VecDeque::new();
        for mut waits in self.waiting.reads.take(stream).unwrap_or_default() {
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
                        self.waiting.reads.again(stream.clone());
                    }
                    waits.call.start = Start::Sequence(page.next);
                    rest.push_back(waits);
                }
                result => self.tell(waits.teller, result),
            }
        }
        self.waiting.reads.park(stream.clone(), rest);
    }

    fn serve_watchers(&mut self, bucket: &String) {
        let mut rest = VecDeque::new();
        for waits in self.waiting.watches.take(bucket).unwrap_or_default() {
            if !waits.teller.is_wanted() {
                continue;
            }
            match self.folder.changes(bucket, &waits.call) {
                Ok(changes) if changes.entries.is_empty() && waits.until_us > self.now_us => rest.push_back(waits),
                result => self.show(waits.teller, result),
            }
        }
        self.waiting.watches.park(bucket.clone(), rest);
    }
}
