//! Changes of a folder's state, as its journal stores them.

use bytes::Bytes;
use tidewire_backend::home::{
    BucketSettings, Compact, ConsumerSettings, Full, NewMessage, Order, ScheduleSettings, Start, StreamSettings,
};
use tidewire_core::stream::consumer::{Change, Dead};
use tidewire_core::stream::keyvalue::Entry;
use tidewire_core::stream::lease::Granted;
use tidewire_core::stream::recurrence::Timing;

use super::codec::{Read, Reader, Writer};

/// A change of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// A stream was made, in the folder of this number.
    Stream(u64, StreamSettings),
    /// It was deleted.
    StreamGone(u64),
    /// Its events before this one were purged.
    First(u64, u64),
    /// A consumer of a stream was made; its first event.
    Consumer(u64, ConsumerSettings, u64),
    /// It was deleted.
    ConsumerGone(u64, String),
    /// It has moved on.
    Cursor(u64, String, Vec<Change>),
    /// A schedule of a stream was made; from when on its intervals are counted, and up to when its
    /// beats are over.
    Schedule(u64, ScheduleSettings, (u64, u64)),
    /// It was cancelled.
    ScheduleGone(u64, String),
    /// A beat of it has come: those up to this time are over.
    Beat(u64, String, u64),
    /// A bucket was made.
    Bucket(BucketSettings),
    /// It was deleted.
    BucketGone(String),
    /// A key of a bucket was written or deleted.
    Entry(String, Entry),
    /// A bucket has had revisions up to this one.
    Revision(String, u64),
    /// A lease was granted.
    Granted(Granted),
    /// A lease was released.
    Released(String, u64),
    /// The greatest number of any stream so far.
    Newest(u64),
    /// Everything before it is the whole state when the journal's file was begun.
    Whole,
}

impl Op {
    /// Appends it.
    pub fn write_to(&self, out: &mut Writer) {
        match self {
            Self::Stream(number, settings) => match settings.compact {
                // Streams that are not compacted are written as they were before there were others.
                None => stream(out.u8(1).u64(*number), settings),
                Some(Compact::Key) => stream(out.u8(15).u64(*number), settings).u8(1),
                Some(Compact::Subject) => stream(out.u8(15).u64(*number), settings).u8(2),
            },
            Self::StreamGone(number) => out.u8(2).u64(*number),
            Self::First(number, first) => out.u8(3).u64(*number).u64(*first),
            Self::Consumer(number, settings, next) => consumer(out.u8(4).u64(*number), settings).u64(*next),
            Self::ConsumerGone(number, name) => out.u8(5).u64(*number).text(name),
            Self::Cursor(number, name, changes) => out.u8(6).u64(*number).text(name).list(changes, write_change),
            Self::Bucket(BucketSettings { name, history, ttl_us, max_bytes, replicas }) => {
                out.u8(7).text(name).u64((*history).into()).maybe(*ttl_us).maybe(*max_bytes).u64((*replicas).into())
            }
            Self::BucketGone(name) => out.u8(8).text(name),
            Self::Entry(bucket, entry) => write_entry(out.u8(9).text(bucket), entry),
            Self::Revision(bucket, revision) => out.u8(10).text(bucket).u64(*revision),
            Self::Granted(Granted { name, fence, holder, ttl_us }) => {
                out.u8(11).text(name).u64(*fence).text(holder).u64(*ttl_us)
            }
            Self::Released(name, fence) => out.u8(12).text(name).u64(*fence),
            Self::Schedule(number, settings, (began_us, over_us)) => {
                schedule(out.u8(16).u64(*number), settings).u64(*began_us).u64(*over_us)
            }
            Self::ScheduleGone(number, name) => out.u8(17).u64(*number).text(name),
            Self::Beat(number, name, over_us) => out.u8(18).u64(*number).text(name).u64(*over_us),
            Self::Whole => out.u8(13),
            Self::Newest(number) => out.u8(14).u64(*number),
        };
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// The fault of the bytes.
    pub fn read(bytes: &[u8]) -> Read<Self> {
        let mut from = Reader(bytes);
        Ok(match from.u8()? {
            1 => Self::Stream(from.u64()?, read_stream(&mut from)?),
            2 => Self::StreamGone(from.u64()?),
            3 => Self::First(from.u64()?, from.u64()?),
            4 => Self::Consumer(from.u64()?, read_consumer(&mut from)?, from.u64()?),
            5 => Self::ConsumerGone(from.u64()?, from.text()?),
            6 => Self::Cursor(from.u64()?, from.text()?, from.list(read_change)?),
            7 => Self::Bucket(BucketSettings {
                name: from.text()?,
                history: from.u32()?,
                ttl_us: from.maybe()?,
                max_bytes: from.maybe()?,
                replicas: from.u32()?,
            }),
            8 => Self::BucketGone(from.text()?),
            9 => Self::Entry(from.text()?, read_entry(&mut from)?),
            10 => Self::Revision(from.text()?, from.u64()?),
            11 => Self::Granted(Granted {
                name: from.text()?,
                fence: from.u64()?,
                holder: from.text()?,
                ttl_us: from.u64()?,
            }),
            12 => Self::Released(from.text()?, from.u64()?),
            13 => Self::Whole,
            14 => Self::Newest(from.u64()?),
            15 => {
                let (number, mut settings) = (from.u64()?, read_stream(&mut from)?);
                settings.compact = match from.u8()? {
                    1 => Some(Compact::Key),
                    2 => Some(Compact::Subject),
                    other => return Err(format!("{other} is no kind of compaction that this version knows")),
                };
                Self::Stream(number, settings)
            }
            16 => Self::Schedule(from.u64()?, read_schedule(&mut from)?, (from.u64()?, from.u64()?)),
            17 => Self::ScheduleGone(from.u64()?, from.text()?),
            18 => Self::Beat(from.u64()?, from.text()?, from.u64()?),
            other => return Err(format!("{other} is no change that this version knows")),
        })
    }
}

fn stream<'a>(out: &'a mut Writer, settings: &StreamSettings) -> &'a mut Writer {
    out.text(&settings.name).list(&settings.subjects, |out, pattern| out.text(pattern));
    out.maybe(settings.max_age_us).maybe(settings.max_bytes).maybe(settings.max_messages);
    out.u8((settings.full == Full::DropOld).into()).u64(settings.dedupe_us).u64(settings.replicas.into())
}

fn read_stream(from: &mut Reader<'_>) -> Read<StreamSettings> {
    Ok(StreamSettings {
        name: from.text()?,
        subjects: from.list(Reader::parsed)?,
        max_age_us: from.maybe()?,
        max_bytes: from.maybe()?,
        max_messages: from.maybe()?,
        full: if from.u8()? == 1 { Full::DropOld } else { Full::Refuse },
        dedupe_us: from.u64()?,
        replicas: from.u32()?,
        compact: None,
    })
}

fn consumer<'a>(out: &'a mut Writer, settings: &ConsumerSettings) -> &'a mut Writer {
    out.text(&settings.name).list(&settings.filter, |out, pattern| out.text(pattern));
    out.u64(settings.ack_wait_us).u64(settings.max_deliver.into());
    out.list(&settings.backoff_us, |out, delay| out.u64(*delay)).u64(settings.max_in_flight.into());
    out.u8((settings.order == Order::Key).into()).u64(settings.inactive_us)
}

fn read_consumer(from: &mut Reader<'_>) -> Read<ConsumerSettings> {
    Ok(ConsumerSettings {
        name: from.text()?,
        filter: from.list(Reader::parsed)?,
        start: Start::All,
        ack_wait_us: from.u64()?,
        max_deliver: from.u32()?,
        backoff_us: from.list(Reader::u64)?,
        max_in_flight: from.u32()?,
        order: if from.u8()? == 1 { Order::Key } else { Order::None },
        inactive_us: from.u64()?,
    })
}

fn schedule<'a>(out: &'a mut Writer, settings: &ScheduleSettings) -> &'a mut Writer {
    let ScheduleSettings { name, timing, message } = settings;
    out.text(name).text(timing.text()).text(timing.time_zone()).text(&message.subject).bytes(&message.payload);
    out.list(message.key.as_slice(), |out, key| out.text(key));
    out.list(&message.headers, |out, (name, value)| out.text(name).text(value)).maybe(message.ttl_us)
}

fn read_schedule(from: &mut Reader<'_>) -> Read<ScheduleSettings> {
    let name = from.text()?;
    let timing = Timing::new(&from.text()?, &from.text()?)?;
    let mut message = NewMessage::new(from.parsed()?, Bytes::copy_from_slice(from.bytes()?));
    message.key = from.list(Reader::text)?.pop();
    message.headers = from.list(|from| Ok((from.text()?, from.text()?)))?;
    message.ttl_us = from.maybe()?;
    Ok(ScheduleSettings { name, timing, message })
}

fn write_change<'a>(out: &'a mut Writer, change: &Change) -> &'a mut Writer {
    match change {
        Change::Tried { first, last, deliveries, due_us } => {
            out.u8(1).u64(*first).u64(*last).u64((*deliveries).into()).u64(*due_us)
        }
        Change::Done { first, last } => out.u8(2).u64(*first).u64(*last),
        Change::Floor(floor) => out.u8(3).u64(*floor),
        Change::Dead(dead) => {
            out.u8(4).u64(dead.sequence).u64(dead.deliveries.into()).u64(dead.dead_at_us);
            out.text(&dead.reason).text(&dead.error).text(&dead.traceback)
        }
        Change::Requeued(sequence) => out.u8(5).u64(*sequence),
        Change::Dropped(sequence) => out.u8(6).u64(*sequence),
        Change::Moved(next) => out.u8(7).u64(*next),
        Change::Paused(until) => out.u8(8).maybe(*until),
    }
}

fn read_change(from: &mut Reader<'_>) -> Read<Change> {
    Ok(match from.u8()? {
        1 => Change::Tried { first: from.u64()?, last: from.u64()?, deliveries: from.u32()?, due_us: from.u64()? },
        2 => Change::Done { first: from.u64()?, last: from.u64()? },
        3 => Change::Floor(from.u64()?),
        4 => Change::Dead(Box::new(Dead {
            sequence: from.u64()?,
            deliveries: from.u32()?,
            dead_at_us: from.u64()?,
            reason: from.text()?,
            error: from.text()?,
            traceback: from.text()?,
        })),
        5 => Change::Requeued(from.u64()?),
        6 => Change::Dropped(from.u64()?),
        7 => Change::Moved(from.u64()?),
        8 => Change::Paused(from.maybe()?),
        other => return Err(format!("{other} is no change of a consumer that this version knows")),
    })
}

fn write_entry<'a>(out: &'a mut Writer, entry: &Entry) -> &'a mut Writer {
    out.text(&*entry.key).u8(entry.value.is_some().into()).bytes(entry.value.as_deref().unwrap_or_default());
    out.u64(entry.revision).u64(entry.time_us).maybe(entry.expires_us).u8(entry.purged.into())
}

fn read_entry(from: &mut Reader<'_>) -> Read<Entry> {
    let key = from.text()?.into();
    let has_value = from.u8()? != 0;
    let value = Bytes::copy_from_slice(from.bytes()?);
    Ok(Entry {
        key,
        value: has_value.then_some(value),
        revision: from.u64()?,
        time_us: from.u64()?,
        expires_us: from.maybe()?,
        purged: from.u8()? != 0,
    })
}
