//! Streams, consumers, leases and key-value buckets as state machines: no files, no clock.
//!
//! - [`record`]: the records of a log, as bytes with checksums.
//! - [`scan`]: recovery of a segment after a crash.
//! - [`log`]: sequences, limits, ids and segments of one stream.
//! - [`compaction`]: the newest event of each key, and the events that it replaces.
//! - [`command`]: durable commands: queued, run, retried, cancelled, ended.
//! - [`cron`]: cron expressions, and the minutes that they select.
//! - [`consumer`]: a cursor over a stream: deliveries, waiting and acknowledged events.
//! - [`inbox`]: the inbox of a durable agent: done, waiting and sent messages, as one record.
//! - [`lease`]: timed exclusive rights with fencing tokens.
//! - [`keyvalue`]: a bucket of keys with revisions, history and times to live.
//! - [`ranges`]: sets of sequences as ranges.
//! - [`schedule`]: the schedules of one stream, and their due beats.
//! - [`subscription`]: the deliveries of one handler: credit, extension, drain.
//! - [`fetch_pacer`]: the fetch size of a reader.
//! - [`command_slots`]: the slots of a command worker: fetches, order and returned tokens.
//! - [`lease_holder`]: a lease as its holder sees it.
//! - [`recurrence`]: recurrence rules: a cron expression in a time zone, or an interval.
//! - [`window`]: the waiting messages of a publisher, and its batch under way.
//!
//! Times are microseconds of the wall clock, given with each call.

pub mod command;
pub mod command_slots;
pub mod compaction;
pub mod consumer;
pub mod cron;
pub mod dedupe;
pub mod fetch_pacer;
pub mod inbox;
pub mod keyvalue;
pub mod lease;
pub mod lease_holder;
pub mod log;
pub mod ranges;
pub mod record;
pub mod recurrence;
pub mod scan;
pub mod schedule;
pub mod subscription;
pub mod window;
