//! Streams, consumers, leases and key-value buckets as state machines: no files, no clock.
//!
//! - [`record`]: the records of a log, as bytes with checksums.
//! - [`scan`]: what a segment of a log still holds after a crash.
//! - [`log`]: sequences, limits, ids and segments of one stream.
//! - [`compaction`]: the newest event of each key, and what it replaces.
//! - [`command`]: long work that is kept: queued, run, tried again, cancelled, over.
//! - [`cron`]: cron expressions, and the minutes that they select.
//! - [`consumer`]: a cursor over a stream: what is out, what waits, what is done.
//! - [`inbox`]: the inbox of a durable agent: what is over, what waits, what was sent, as one
//!   record.
//! - [`lease`]: timed exclusive rights with fencing tokens.
//! - [`keyvalue`]: a bucket of keys with revisions, history and times to live.
//! - [`ranges`]: sets of sequences as ranges.
//! - [`schedule`]: the schedules of one stream: which beat is due.
//! - [`subscription`]: the deliveries of one handler: credit, extension, drain.
//! - [`fetch_pacer`]: how many events a reader fetches at once.
//! - [`command_slots`]: the places of a worker of commands: what it fetches, which goes first, what
//!   it gives back.
//! - [`lease_holder`]: a lease as its holder sees it.
//! - [`recurrence`]: when a schedule beats: a cron expression in a time zone, or an interval.
//! - [`window`]: what a publisher has waiting and under way.
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
