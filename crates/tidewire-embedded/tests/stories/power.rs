//! Loss of power at every kind of moment: what was acked is there, in order, once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tidewire_backend::home::{
    BucketSettings, Change, ConsumerSettings, Event, Expect, Fetch, HomeErrorKind, HomeResult, NewMessage, Order,
    Purge, Read, SCHEDULE_HEADER, ScheduleSettings, Settle, Settlement, Start, StreamSettings,
};
use tidewire_core::stream::recurrence::Timing;
use tidewire_embedded::folder::{Folder, Sizes};
use tidewire_proto::subject::{Pattern, Subject};
use tidewire_testkit::seeds::seeds;

use crate::simulated::Simulated;

const SIZES: Sizes = Sizes { segment_bytes: 6_000, reserve_bytes: 2_000, compact_bytes: 3_000 };
const SECOND_US: u64 = 1_000_000;
const FETCH: Fetch = Fetch { max_messages: 7, max_bytes: 100_000, wait_us: 0 };

// Promises: P17.1, P17.2, P17.3, P17.5, P17.8, P17.18, P17.24, P17.44.
#[test]
fn acked_events_survive_every_loss_of_power() {
    seeds("losses of power", 1, |seed| History::new(seed).run());
}

/// State that the folder must have.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// Payloads of acked events by sequence.
    events: BTreeMap<u64, Vec<u8>>,
    /// Ids that were acked, and where.
    ids: BTreeMap<String, u64>,
    /// Events before it were purged.
    first: u64,
    /// Events that the consumer has acked.
    done: BTreeSet<u64>,
    keys: BTreeMap<String, Option<Vec<u8>>>,
    fence: u64,
    /// When beats of the schedule were stored, by sequence.
    beats: BTreeMap<u64, u64>,
}

struct History {
    random: u64,
    disk: Simulated,
    now_us: u64,
    sure: Expected,
    /// State of the last group without an ack: any of it may be there.
    maybe: Expected,
    out: Vec<(u64, u64)>,
    serial: u64,
}

impl History {
    fn new(number: u64) -> Self {
        let random = number.wrapping_mul(0x2545_F491_4F6C_DD1D) + 1;
        let disk = Simulated::new(number);
        let (sure, maybe) = (Expected { first: 1, ..Expected::default() }, Expected::default());
        Self { random, disk, now_us: 1_000_000, sure, maybe, out: Vec::new(), serial: 0 }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn run(&mut self) {
        for life in 0..6 {
            let cut = 3 + self.draw(120);
            if life > 0 || self.draw(4) > 0 {
                self.disk.lose_power_after(cut);
            }
            let ended = self.live();
            self.disk.lose_power_after(0);
            self.disk.restore_power();
            if let Err(error) = ended {
                assert_ne!(error.kind(), HomeErrorKind::Corrupt, "{error}");
            }
            self.check();
        }
    }

    fn open(&mut self) -> HomeResult<Folder> {
        let random = self.draw(u64::MAX);
        // The clock may have been set while there was no power.
        let now_us = match self.draw(4) {
            0 => self.now_us.saturating_sub(self.draw(100_000_000)),
            1 => self.now_us + self.draw(100_000_000),
            _ => self.now_us,
        };
        let folder = Folder::open(Box::new(self.disk.clone()), SIZES, random, now_us)?;
        self.now_us = folder.opened_us();
        Ok(folder)
    }

    /// Makes the schedule, which beats each second, and gives a time at which it does.
    fn schedule(&mut self, folder: &mut Folder) -> HomeResult<u64> {
        let (info, change) = folder.create_schedule("s", beats(), self.now_us)?;
        assert!(change == Change::Kept || self.sure.beats.is_empty(), "the schedule is gone");
        Ok(info.next_us.expect("an interval goes on"))
    }

    /// Each beat that has passed has come, and each came once: between two that are stored lies a
    /// time at which it beats.
    fn check_beats(&mut self, folder: &mut Folder, beats_at_us: u64) -> HomeResult<()> {
        let page = folder.read("s", &everything(1), self.now_us)?;
        let stored = page.events.iter().filter(|event| is_beat(event));
        for (sequence, event) in stored.map(|event| (event.sequence, event)) {
            self.sure.events.insert(sequence, event.payload.to_vec());
            self.sure.beats.insert(sequence, event.time_us);
        }
        let number = |time_us: u64| (time_us + SECOND_US - beats_at_us % SECOND_US) / SECOND_US;
        let numbers: Vec<u64> = self.sure.beats.values().map(|time_us| number(*time_us)).collect();
        assert!(numbers.windows(2).all(|two| two[0] < two[1]), "a beat was stored twice: {:?}", self.sure.beats);
        if self.now_us >= beats_at_us {
            assert_eq!(numbers.last(), Some(&number(self.now_us)), "the beat of before {} is missing", self.now_us);
        }
        Ok(())
    }

    /// Calls and commits until power is lost or it has done enough.
    fn live(&mut self) -> HomeResult<()> {
        let mut folder = self.open()?;
        folder.create_stream(settings(), self.now_us)?;
        folder.create_consumer("s", consumer(), self.now_us)?;
        folder.create_bucket(BucketSettings::new("b"))?;
        let beats_at_us = self.schedule(&mut folder)?;
        folder.commit(self.now_us)?;
        self.out.clear();
        for _ in 0..40 {
            self.maybe = Expected::default();
            for _ in 0..=self.draw(4) {
                self.call(&mut folder)?;
            }
            let long = if self.draw(6) == 0 { 3 * SECOND_US } else { 50_000 };
            self.now_us += self.draw(long);
            folder.release_due(self.now_us)?;
            folder.beat(self.now_us, self.now_us)?;
            if self.draw(5) == 0 {
                folder.write(self.now_us)?;
            }
            folder.commit(self.now_us)?;
            self.acked();
            self.check_beats(&mut folder, beats_at_us)?;
        }
        if self.draw(2) == 0 { folder.close(self.now_us) } else { Ok(()) }
    }

    fn call(&mut self, folder: &mut Folder) -> HomeResult<()> {
        match self.draw(12) {
            0..=4 => self.publish(folder),
            5 | 6 => {
                let fetched = folder.fetch("s", "c", FETCH, self.now_us)?;
                self.out.extend(fetched.deliveries.iter().map(|delivery| (delivery.event.sequence, delivery.ticket)));
                for delivery in &fetched.deliveries {
                    let sequence = delivery.event.sequence;
                    assert!(!self.sure.done.contains(&sequence), "{sequence} was acked, and is delivered again");
                    assert_eq!(self.sure.events.get(&sequence).map(Vec::as_slice), Some(&delivery.event.payload[..]));
                }
                Ok(())
            }
            7 => self.settle(folder),
            8 | 9 => self.write_key(folder),
            10 => {
                let leased = folder.acquire(("lease", "me"), (1_000, 0), 1, self.now_us)?;
                if let Some((_, Ok(grant))) = leased {
                    assert!(grant.fence > self.sure.fence.max(self.maybe.fence), "a fence came back");
                    self.maybe.fence = grant.fence;
                }
                Ok(())
            }
            _ if self.draw(8) == 0 => {
                let before = self.sure.first + self.draw(10);
                let info = folder.stream_info("s")?;
                folder.purge("s", &Purge { before: Some(before), ..Purge::default() })?;
                self.maybe.first = before.clamp(info.first, info.last + 1);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn publish(&mut self, folder: &mut Folder) -> HomeResult<()> {
        let whole = self.draw(4) == 0;
        let mut messages = Vec::new();
        for _ in 0..=self.draw(8) {
            self.serial += 1;
            let length = if self.draw(9) == 0 { 3_000 } else { self.draw(200) as usize };
            let mut payload = self.serial.to_le_bytes().to_vec();
            payload.resize(8 + length, self.serial as u8);
            let mut message = NewMessage::new(Subject::new("s.x").expect("a subject"), payload);
            message.key = Some(format!("k{}", self.draw(3)));
            if self.draw(3) == 0 {
                message.id = Some(format!("id-{}", self.draw(30)));
            }
            messages.push(message);
        }
        for (message, ack) in messages.iter().zip(folder.publish("s", &messages, whole, self.now_us)?) {
            let ack = ack?;
            let known = message.id.as_ref().and_then(|id| self.maybe.ids.get(id).or(self.sure.ids.get(id)));
            if ack.duplicate {
                assert_eq!(known, Some(&ack.sequence), "a duplicate of what was never there");
                continue;
            }
            // An id is forgotten with the event, if that was purged before the folder was opened.
            let purged = known.is_some_and(|sequence| *sequence < self.sure.first.max(self.maybe.first));
            assert!(known.is_none() || purged, "{:?} was stored twice", message.id);
            self.maybe.events.insert(ack.sequence, message.payload.to_vec());
            if let Some(id) = &message.id {
                self.maybe.ids.insert(id.clone(), ack.sequence);
            }
        }
        Ok(())
    }

    fn settle(&mut self, folder: &mut Folder) -> HomeResult<()> {
        let count = (self.draw(6) as usize).min(self.out.len());
        let taken: Vec<_> = self.out.drain(..count).collect();
        let settled = taken.iter().map(|(sequence, ticket)| {
            let how = if self.random.wrapping_add(*sequence) % 4 == 0 {
                Settlement::Nak { delay_us: Some(10_000), fault: None }
            } else {
                Settlement::Ack
            };
            Settle { sequence: *sequence, ticket: *ticket, how }
        });
        let settled: Vec<_> = settled.collect();
        let results = folder.settle("s", "c", settled.clone(), self.now_us)?;
        for (settle, result) in settled.iter().zip(results) {
            if result.is_ok() && settle.how == Settlement::Ack {
                self.maybe.done.insert(settle.sequence);
            }
        }
        Ok(())
    }

    fn write_key(&mut self, folder: &mut Folder) -> HomeResult<()> {
        let name = format!("key.{}", self.draw(6));
        let key = Subject::new(&name).expect("a key");
        self.serial += 1;
        let value = (self.draw(4) > 0).then(|| self.serial.to_le_bytes().repeat(20));
        match value.clone() {
            Some(value) => folder.put("b", &key, Bytes::from(value), (Expect::Any, None), self.now_us)?,
            None => folder.delete("b", &key, Expect::Any, false, self.now_us)?,
        };
        self.maybe.keys.insert(name, value);
        Ok(())
    }

    /// Commits the last group of calls.
    fn acked(&mut self) {
        let maybe = std::mem::take(&mut self.maybe);
        self.sure.events.extend(maybe.events);
        self.sure.ids.extend(maybe.ids);
        self.sure.done.extend(maybe.done);
        self.sure.keys.extend(maybe.keys);
        self.sure.fence = self.sure.fence.max(maybe.fence);
        self.sure.first = self.sure.first.max(maybe.first);
    }

    /// Opens what is left, and compares it; what may be there and is counts from now on.
    fn check(&mut self) {
        let mut folder = self.open().unwrap_or_else(|error| panic!("what a crash has left can't be opened: {error}"));
        folder.create_stream(settings(), self.now_us).expect("it is there or can be made");
        folder.create_consumer("s", consumer(), self.now_us).expect("it is there or can be made");
        folder.create_bucket(BucketSettings::new("b")).expect("it is there or can be made");
        folder.commit(self.now_us).expect("a disk with power takes it");
        let info = folder.stream_info("s").expect("it is there");
        assert!(info.first <= self.sure.first.max(self.maybe.first), "events are gone that nobody has purged");
        let page = folder.read("s", &everything(self.sure.first), self.now_us).expect("it can be read");
        let found: BTreeMap<u64, Vec<u8>> =
            page.events.iter().map(|event| (event.sequence, event.payload.to_vec())).collect();
        self.sure.first = self.sure.first.max(info.first);
        for (sequence, payload) in self.sure.events.range(self.sure.first..) {
            assert_eq!(found.get(sequence), Some(payload), "event {sequence} was acked");
        }
        for (sequence, payload) in &found {
            let beat = page.events.iter().any(|event| event.sequence == *sequence && is_beat(event));
            let known = self.sure.events.get(sequence).or_else(|| self.maybe.events.get(sequence));
            let known = known.or(Some(payload).filter(|_| beat));
            assert_eq!(known, Some(payload), "event {sequence} was never published");
        }
        for (at, event) in page.events.iter().enumerate().skip(1) {
            assert_eq!(event.sequence, page.events[at - 1].sequence + 1, "no gaps");
        }
        self.check_keys(&folder);
        // Stored events of the last group count as published, acked or not.
        let maybe = std::mem::take(&mut self.maybe);
        let stored = |sequence: &u64| found.contains_key(sequence);
        self.sure.events.extend(maybe.events.into_iter().filter(|(sequence, _)| stored(sequence)));
        self.sure.ids.extend(maybe.ids.into_iter().filter(|(_, sequence)| stored(sequence)));
        // An unreported fence may be granted again, but never a smaller one.
        let beats_at_us = self.schedule(&mut folder).expect("it is there or can be made");
        folder.beat(self.now_us, self.now_us).expect("a disk with power takes it");
        folder.commit(self.now_us).expect("a disk with power takes it");
        self.check_beats(&mut folder, beats_at_us).expect("it can be read");
        self.check_consumer(&mut folder, &maybe.done);
    }

    fn check_keys(&mut self, folder: &Folder) {
        let names: BTreeSet<String> = self.sure.keys.keys().chain(self.maybe.keys.keys()).cloned().collect();
        for name in names {
            let key = Subject::new(&name).expect("a key");
            let entry = folder.get("b", &key, None, self.now_us).expect("the bucket is there");
            let value = entry.and_then(|entry| entry.value.map(|value| value.to_vec()));
            let sure = self.sure.keys.get(&name).cloned().flatten();
            let maybe = self.maybe.keys.contains_key(&name);
            assert!(value == sure || maybe, "{name} was {sure:?}, and is {value:?}");
            self.sure.keys.insert(name, value);
        }
    }

    /// Everything that is not done comes, what is done does not.
    fn check_consumer(&mut self, folder: &mut Folder, maybe_done: &BTreeSet<u64>) {
        let mut seen = BTreeSet::new();
        let mut now_us = self.now_us;
        for _ in 0..2_000 {
            now_us += 1_000_000;
            let fetched = folder.fetch("s", "c", FETCH, now_us).expect("it can be read");
            seen.extend(fetched.deliveries.iter().map(|delivery| delivery.event.sequence));
            if fetched.deliveries.is_empty() && !fetched.more {
                break;
            }
            let acks = fetched.deliveries.iter().map(|delivery| Settle {
                sequence: delivery.event.sequence,
                ticket: delivery.ticket,
                how: Settlement::Ack,
            });
            folder.settle("s", "c", acks.collect(), now_us).expect("the consumer is there");
        }
        let dead: BTreeSet<u64> = folder
            .dead_letters("s", "c", (0, u32::MAX), now_us)
            .expect("the consumer is there")
            .iter()
            .map(|letter| letter.sequence)
            .collect();
        for sequence in self.sure.events.range(self.sure.first..).map(|(sequence, _)| sequence) {
            let done = self.sure.done.contains(sequence);
            assert!(!(done && seen.contains(sequence)), "{sequence} was acked by the consumer, and came again");
            let ended = done || maybe_done.contains(sequence) || seen.contains(sequence) || dead.contains(sequence);
            assert!(ended, "{sequence} is not delivered any more");
        }
        // Nothing of this look is committed: the next run continues from the state on the disk.
        for sequence in maybe_done {
            if !seen.contains(sequence) {
                self.sure.done.insert(*sequence);
            }
        }
    }
}

fn everything(first: u64) -> Read {
    let (start, most) = (Start::Sequence(first), u32::MAX);
    Read { start, stop: None, filter: Vec::new(), max_messages: most, max_bytes: most, wait_us: 0 }
}

fn beats() -> ScheduleSettings {
    let subject = Subject::new("s.beat").expect("a subject");
    let timing = Timing::new("@every 1s", "UTC").expect("an interval");
    ScheduleSettings { name: "beats".to_owned(), timing, message: NewMessage::new(subject, "beat") }
}

fn is_beat(event: &Event) -> bool {
    event.headers.first().is_some_and(|(name, value)| name == SCHEDULE_HEADER && value == "beats")
}

fn settings() -> StreamSettings {
    let subjects = vec![Pattern::new("s.>").expect("a pattern")];
    StreamSettings { dedupe_us: u64::MAX / 4, ..StreamSettings::new("s", subjects) }
}

fn consumer() -> ConsumerSettings {
    ConsumerSettings {
        start: Start::All,
        order: Order::Key,
        max_deliver: 0,
        max_in_flight: 20,
        ack_wait_us: 30_000,
        backoff_us: Vec::new(),
        ..ConsumerSettings::new("c")
    }
}
