//! Consumers of a folder's streams: fetched from, settled, paused, moved; their dead letters.

use tidewire_backend::home::{
    ConsumerInfo, ConsumerSettings, DeadLetter, Delivery, Event, Fault, Fetch, HomeError, HomeErrorKind, HomeResult,
    Order, Settle, Settlement, Start,
};
use tidewire_core::stream::consumer::{Consumer, Delivered, Options};
use tidewire_proto::generated::limits;

use super::files::SegmentCursor;
use super::names::{check_consumer, check_count, clipped};
use super::read::{Subjects, is_shown, selects, to_event};
use super::streams::same;
use super::{Cursor, Folder};
use crate::state::Op;

/// How many events are scanned for one fetch, so that others get their turn.
const SCANNED_MAX: u32 = 20_000;

/// Result of a fetch.
#[derive(Debug)]
pub struct Fetched {
    /// The deliveries.
    pub deliveries: Vec<Delivery>,
    /// There is more to be looked at.
    pub more: bool,
}

impl Folder {
    /// Makes a consumer, or finds that it is there.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid`, `Differs`, `Limit`.
    pub fn create_consumer(
        &mut self,
        stream: &str,
        settings: ConsumerSettings,
        now_us: u64,
    ) -> HomeResult<ConsumerInfo> {
        check_consumer(&settings)?;
        let known = self.stream(stream)?;
        let (number, name) = (known.number, settings.name.clone());
        if let Some(cursor) = known.cursors.get(&name) {
            same(cursor.settings.difference(&settings))?;
            return self.consumer_info(stream, &name);
        }
        check_count("consumers", known.cursors.len(), &limits::STREAM_CONSUMERS)?;
        let next = self.sequence_of(stream, settings.start)?;
        self.keep(&Op::Consumer(number, settings.clone(), next));
        let cursor = Cursor::new(settings, next, now_us);
        self.stream_mut(stream)?.cursors.insert(name.clone(), cursor);
        self.plan(stream, &name);
        self.consumer_info(stream, &name)
    }

    /// The state of a consumer.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn consumer_info(&mut self, stream: &str, consumer: &str) -> HomeResult<ConsumerInfo> {
        let Self { disk, streams, .. } = self;
        let known = streams.get_mut(stream).ok_or_else(|| super::errors::not_found("stream", stream))?;
        let cursor = known.cursors.get(consumer).ok_or_else(|| super::errors::not_found("consumer", consumer))?;
        let (machine, settings) = (&cursor.machine, cursor.settings.clone());
        let last = known.files.log.durable();
        let mut info = ConsumerInfo {
            acked_to: machine.acked_to(),
            in_flight: machine.in_flight() as u64,
            waiting: (machine.waiting() + machine.parked()) as u64,
            lag: last.saturating_sub(machine.acked_to()),
            redelivered: machine.redelivered(),
            dead: machine.dead().len() as u64,
            oldest_time_us: None,
            paused_until_us: machine.paused_until_us(),
            settings,
        };
        let oldest = machine.oldest().unwrap_or(machine.acked_to() + 1);
        if oldest <= last {
            known.files.read(disk.as_mut(), &mut SegmentCursor::before(oldest), &mut |event, _, _| {
                info.oldest_time_us = Some(event.time_us);
                false
            })?;
        }
        Ok(info)
    }

    /// Every consumer of a stream.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn list_consumers(&mut self, stream: &str) -> HomeResult<Vec<ConsumerInfo>> {
        let names: Vec<String> = self.stream(stream)?.cursors.keys().cloned().collect();
        names.iter().map(|name| self.consumer_info(stream, name)).collect()
    }

    /// Deletes a consumer.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn delete_consumer(&mut self, stream: &str, consumer: &str) -> HomeResult<()> {
        let (number, _) = self.cursor_mut(stream, consumer)?;
        self.unplan(stream, consumer);
        self.stream_mut(stream)?.cursors.remove(consumer);
        self.keep(&Op::ConsumerGone(number, consumer.to_owned()));
        Ok(())
    }

    /// Takes deliveries that are ready. The deliveries are recorded in the journal, which the next
    /// `write` writes.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn fetch(&mut self, stream: &str, consumer: &str, fetch: Fetch, now_us: u64) -> HomeResult<Fetched> {
        let Self { disk, streams, journal, .. } = self;
        let known = streams.get_mut(stream).ok_or_else(|| super::errors::not_found("stream", stream))?;
        let number = known.number;
        let Some(mut cursor) = known.cursors.remove(consumer) else {
            return Err(super::errors::not_found("consumer", consumer));
        };
        cursor.used_us = now_us;
        cursor.machine.tick(now_us);
        let mut fetching = Fetching { deliveries: Vec::new(), bytes: 0, remaining: SCANNED_MAX, fetch, now_us };
        let result = fetching.run(disk.as_mut(), known, &mut cursor);
        let changes = cursor.machine.take_changes();
        if !changes.is_empty() {
            journal.append(&Op::Cursor(number, consumer.to_owned(), changes));
        }
        known.cursors.insert(consumer.to_owned(), cursor);
        self.plan(stream, consumer);
        result?;
        Ok(Fetched { more: fetching.remaining == 0, deliveries: fetching.deliveries })
    }

    /// Releases deliveries that no caller took.
    pub fn give_back(&mut self, stream: &str, consumer: &str, deliveries: &[Delivery], now_us: u64) {
        if let Ok((_, cursor)) = self.cursor_mut(stream, consumer) {
            for Delivery { event, ticket, .. } in deliveries {
                // A delivery whose ack wait is over is no longer outstanding.
                let _stale = cursor.machine.settle(event.sequence, *ticket, Settlement::Release, now_us);
            }
            self.note(stream, consumer, false);
        }
    }

    /// Settles deliveries. The settlements hold once `commit` has returned.
    ///
    /// # Errors
    ///
    /// `NotFound`; each has its own `Stale`.
    pub fn settle(
        &mut self,
        stream: &str,
        consumer: &str,
        settled: Vec<Settle>,
        now_us: u64,
    ) -> HomeResult<Vec<HomeResult<()>>> {
        let (_, cursor) = self.cursor_mut(stream, consumer)?;
        cursor.used_us = now_us;
        let results = settled.into_iter().map(|Settle { sequence, ticket, how }| {
            let settled = cursor.machine.settle(sequence, ticket, clipped_texts(how), now_us);
            settled.map_err(|_stale| stale(consumer, sequence))
        });
        let results = results.collect();
        self.note(stream, consumer, true);
        Ok(results)
    }

    /// Pauses delivery until then; `None` resumes it.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn pause(&mut self, stream: &str, consumer: &str, until_us: Option<u64>) -> HomeResult<()> {
        let (_, cursor) = self.cursor_mut(stream, consumer)?;
        match until_us {
            Some(until_us) => cursor.machine.pause(until_us),
            None => cursor.machine.resume(),
        }
        self.note(stream, consumer, true);
        Ok(())
    }

    /// Goes to another place.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn seek(&mut self, stream: &str, consumer: &str, start: Start) -> HomeResult<()> {
        let next = self.sequence_of(stream, start)?;
        let (_, cursor) = self.cursor_mut(stream, consumer)?;
        cursor.machine.seek(next);
        cursor.place = SegmentCursor::before(next);
        self.note(stream, consumer, true);
        Ok(())
    }

    /// Dead letters, from a sequence on.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`, `Corrupt`.
    pub fn dead_letters(
        &mut self,
        stream: &str,
        consumer: &str,
        (from, max): (u64, u32),
        now_us: u64,
    ) -> HomeResult<Vec<DeadLetter>> {
        let (_, cursor) = self.cursor_mut(stream, consumer)?;
        let dead: Vec<_> =
            cursor.machine.dead().range(from..).take(max as usize).map(|(_, dead)| dead.clone()).collect();
        let Self { disk, streams, .. } = self;
        let known = streams.get_mut(stream).expect("it was found");
        let letters = dead.into_iter().map(|dead| {
            Ok(DeadLetter {
                event: known.event(disk.as_mut(), dead.sequence, now_us)?,
                sequence: dead.sequence,
                deliveries: dead.deliveries,
                dead_at_us: dead.dead_at_us,
                reason: dead.reason,
                fault: dead.fault,
            })
        });
        letters.collect()
    }

    /// Redelivers dead letters, or forgets them. Returns how many there were.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn end_dead(
        &mut self,
        stream: &str,
        consumer: &str,
        sequences: &[u64],
        requeue: bool,
        now_us: u64,
    ) -> HomeResult<u64> {
        let (_, cursor) = self.cursor_mut(stream, consumer)?;
        let machine = &mut cursor.machine;
        let end =
            |sequence: &&u64| if requeue { machine.requeue(**sequence, now_us) } else { machine.drop_dead(**sequence) };
        let ended = sequences.iter().filter(end).count();
        self.note(stream, consumer, true);
        Ok(ended as u64)
    }

    /// Processes due times of consumers: ack waits, delays, pauses, and the deletion of idle
    /// consumers. Returns consumers that may have ready events now.
    pub fn tick_consumers(&mut self, now_us: u64, is_awaited: &dyn Fn(&str, &str) -> bool) -> Vec<(String, String)> {
        let mut ticked = Vec::new();
        while self.next_consumer_us().is_some_and(|at| at <= now_us) {
            let (_, stream, name) = self.due.pop_first().expect("it was seen");
            let Ok((_, cursor)) = self.cursor_mut(&stream, &name) else { continue };
            cursor.planned_us = u64::MAX;
            if cursor.unused_us().is_some_and(|at| at <= now_us) {
                if !is_awaited(&stream, &name) {
                    let _gone = self.delete_consumer(&stream, &name);
                    continue;
                }
                cursor.used_us = now_us;
            }
            cursor.machine.tick(now_us);
            self.note(&stream, &name, false);
            ticked.push((stream, name));
        }
        ticked
    }

    /// Time of the next call of [`tick_consumers`](Self::tick_consumers). Idle consumers cost
    /// nothing: only the earliest time is looked at.
    pub fn next_consumer_us(&self) -> Option<u64> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Notes when something is due at a consumer next.
    pub(super) fn plan(&mut self, stream: &str, consumer: &str) {
        let Ok((_, cursor)) = self.cursor_mut(stream, consumer) else { return };
        let before_us = cursor.planned_us;
        let Some(next_us) = cursor.next_us().filter(|next| *next < before_us) else { return };
        cursor.planned_us = next_us;
        let key = |at: u64| (at, stream.to_owned(), consumer.to_owned());
        if before_us < u64::MAX {
            self.due.remove(&key(before_us));
        }
        self.due.insert(key(next_us));
    }

    /// Removes the due time of a deleted consumer.
    pub(super) fn unplan(&mut self, stream: &str, consumer: &str) {
        if let Ok((_, cursor)) = self.cursor_mut(stream, consumer) {
            let at = std::mem::replace(&mut cursor.planned_us, u64::MAX);
            self.due.remove(&(at, stream.to_owned(), consumer.to_owned()));
        }
    }

    /// Takes the changes of a consumer into the journal.
    fn note(&mut self, stream: &str, consumer: &str, urgent: bool) {
        let Ok((number, cursor)) = self.cursor_mut(stream, consumer) else { return };
        let changes = cursor.machine.take_changes();
        if !changes.is_empty() {
            self.journal.append(&Op::Cursor(number, consumer.to_owned(), changes));
            self.urgent |= urgent;
        }
        self.plan(stream, consumer);
    }
}

struct Fetching {
    deliveries: Vec<Delivery>,
    bytes: usize,
    remaining: u32,
    fetch: Fetch,
    now_us: u64,
}

impl Fetching {
    fn is_full(&self) -> bool {
        let most = self.fetch.max_messages.max(1) as usize;
        self.deliveries.len() >= most || (self.bytes >= self.fetch.max_bytes as usize && !self.deliveries.is_empty())
    }

    fn run(
        &mut self,
        disk: &mut dyn crate::disk::Disk,
        stream: &mut super::Stream,
        cursor: &mut Cursor,
    ) -> HomeResult<()> {
        while !self.is_full() && self.remaining > 0 {
            if let Some(sequence) = cursor.machine.first_ready() {
                // It was read before: a failed one, or one that waited for its key.
                self.remaining -= 1;
                match stream.event(disk, sequence, self.now_us)? {
                    Some(event) => {
                        self.deliver(&mut cursor.machine, event);
                    }
                    None => cursor.machine.skip_missing(sequence, self.now_us),
                }
            } else if !cursor.machine.wants_more() || !self.read_on(disk, stream, cursor)? {
                break;
            }
        }
        Ok(())
    }

    fn deliver(&mut self, machine: &mut Consumer, event: Event) {
        let Delivered { delivery, ticket } = machine.take(event.sequence, self.now_us);
        self.bytes += event.payload.len();
        self.deliveries.push(Delivery { event, delivery, ticket });
    }

    /// Offers further events. False if there are none.
    fn read_on(
        &mut self,
        disk: &mut dyn crate::disk::Disk,
        stream: &mut super::Stream,
        cursor: &mut Cursor,
    ) -> HomeResult<bool> {
        let Cursor { settings, machine, place, .. } = cursor;
        machine.skip_to(stream.files.log.first());
        if machine.next() > stream.files.log.durable() {
            return Ok(false);
        }
        if place.next != machine.next() {
            *place = SegmentCursor::before(machine.next());
        }
        let oldest_us = stream.files.log.oldest_time_us(self.now_us);
        let mut subjects = Subjects::default();
        stream.files.read(disk, place, &mut |event, chunk, hidden| {
            self.remaining -= 1;
            let selected =
                !hidden && is_shown(event, oldest_us, self.now_us) && selects(&settings.filter, event.subject);
            if machine.offer(event.sequence, selected, event.key, self.now_us)
                && let Some(event) = to_event(event, chunk, &mut subjects)
            {
                self.deliver(machine, event);
            }
            !self.is_full() && self.remaining > 0 && machine.wants_more() && machine.first_ready().is_none()
        })?;
        Ok(true)
    }
}

impl Cursor {
    pub(super) fn new(settings: ConsumerSettings, next: u64, now_us: u64) -> Self {
        let options = Options {
            ack_wait_us: settings.ack_wait_us,
            max_deliver: settings.max_deliver,
            backoff_us: settings.backoff_us.clone(),
            max_in_flight: settings.max_in_flight as usize,
            by_key: settings.order == Order::Key,
            parked_max: limits::CONSUMER_PARKED.max as usize,
            dead_max: limits::CONSUMER_DEAD_LETTERS.max as usize,
        };
        Self {
            settings,
            machine: Consumer::new(options, next),
            place: SegmentCursor::before(next),
            used_us: now_us,
            planned_us: u64::MAX,
        }
    }

    /// Time at which it is deleted if idle.
    fn unused_us(&self) -> Option<u64> {
        (self.settings.inactive_us > 0).then(|| self.used_us.saturating_add(self.settings.inactive_us))
    }

    fn next_us(&self) -> Option<u64> {
        self.machine.next_deadline_us().into_iter().chain(self.unused_us()).min()
    }
}

fn clipped_texts(how: Settlement) -> Settlement {
    let clip = |Fault { error, traceback }| Fault { error: clipped(error), traceback: clipped(traceback) };
    match how {
        Settlement::Nak { delay_us, fault } => Settlement::Nak { delay_us, fault: fault.map(clip) },
        Settlement::Term { reason, fault } => Settlement::Term { reason: clipped(reason), fault: fault.map(clip) },
        other => other,
    }
}

fn stale(consumer: &str, sequence: u64) -> HomeError {
    let text = format!(
        "consumer {consumer:?}: this delivery of event {sequence} is not out: it was settled before, or the event came to another; settle each delivery once, within ack_wait"
    );
    HomeError::new(HomeErrorKind::Stale, text)
}
