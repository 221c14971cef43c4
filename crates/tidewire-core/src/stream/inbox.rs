//! State machine of a durable agent's inbox: messages that are done, messages that wait for a
//! retry, and the count of sent messages. All of it is one record, which its holder writes by
//! compare-and-set together with the agent's state.
//!
//! Messages are begun in the order of the stream. The record holds the cursor and the messages
//! before the cursor that are not done. So a holder that reads the record begins exactly the
//! messages that are not done. A message from a handler of another agent has a number of its
//! sender. A sender that does not know the result of a publish sends the message again, and the
//! inbox skips the duplicate.

use std::collections::{BTreeMap, BTreeSet};

/// The attempts at a message that is begun and not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Failed attempts.
    pub failed: u32,
    /// Attempts whose process has ended before they did, as far as this is known.
    pub lost: u32,
}

/// The record of an inbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The newest message that was begun.
    pub cursor: u64,
    /// Messages up to there that are not over.
    pub open: BTreeMap<u64, Attempts>,
    /// Of each sender the number of its newest message, and the sequence that this one has.
    pub heard: BTreeMap<String, (u64, u64)>,
    /// How many messages its handlers have sent.
    pub sent: u64,
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// Handle it; this is the attempt, from 1.
    Run(u32),
    /// The same, once the record was written: if the process ends during this attempt, the next
    /// holder knows of it.
    RunOnceWritten(u32),
    /// Nothing: it is a duplicate of an earlier message.
    Over,
    /// Nothing: it is another copy of one that came before.
    Copy,
    /// Give the message up after so many attempts: processes have ended during them. Then call
    /// `Inbox::done`.
    Dead(u32),
}

/// The next step of a message whose attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The message is retried; so many attempts have failed.
    Again(u32),
    /// The message must be given up after so many attempts. Call `Inbox::done` once its dead letter
    /// was written.
    Dead(u32),
}

/// The inbox of an agent, as the one holder of it has it.
#[derive(Clone, Debug)]
pub struct Inbox {
    record: Record,
    in_progress: BTreeSet<u64>,
    /// Number of further attempts before which the record is written. Only such a write shows later
    /// if a message ended its process. Each write costs time, so the writes happen only after a
    /// holder was lost, for as many messages as that holder had in progress.
    careful: u32,
    lost_max: u32,
    senders_max: usize,
}

impl Inbox {
    /// The inbox of a new holder.
    ///
    /// `careful` attempts are written down before they begin: as many as the holder before was at,
    /// if it did not end by itself.
    pub const fn new(record: Record, careful: u32, lost_max: u32, senders_max: usize) -> Self {
        Self { record, in_progress: BTreeSet::new(), careful, lost_max, senders_max }
    }

    /// The record to write now: attempts in progress count as not begun, unless their start had to
    /// be written.
    pub const fn record(&self) -> &Record {
        &self.record
    }

    /// The messages that a new holder begins first, oldest first: those that were begun and are not
    /// over.
    pub fn open(&self) -> Vec<u64> {
        self.record.open.keys().copied().collect()
    }

    /// How many messages are begun and not over, those that wait for another attempt included.
    pub fn count(&self) -> usize {
        self.record.open.len()
    }

    /// Everything before this sequence is over.
    pub fn needed_from(&self) -> u64 {
        self.record.open.keys().next().copied().unwrap_or(self.record.cursor + 1)
    }

    /// A message has come, or its next attempt is due. `from` is its sender and the number that
    /// this one gave it.
    pub fn begin(&mut self, sequence: u64, from: Option<(&str, u64)>) -> Begin {
        if sequence > self.record.cursor {
            self.record.cursor = sequence;
            if from.is_some_and(|(sender, number)| !self.is_new(sender, number, sequence)) {
                return Begin::Copy;
            }
            self.record.open.insert(sequence, Attempts::default());
        }
        let Some(attempts) = self.record.open.get_mut(&sequence) else { return Begin::Over };
        if !self.in_progress.insert(sequence) {
            return Begin::Over;
        }
        let attempt = attempts.failed + attempts.lost + 1;
        if attempts.lost >= self.lost_max {
            return Begin::Dead(attempt - 1);
        }
        if self.careful == 0 {
            return Begin::Run(attempt);
        }
        self.careful -= 1;
        // Taken back when it ends.
        attempts.lost += 1;
        Begin::RunOnceWritten(attempt)
    }

    /// A message was handled, or given up.
    pub fn done(&mut self, sequence: u64) {
        self.record.open.remove(&sequence);
        self.in_progress.remove(&sequence);
    }

    /// An attempt has failed; a message may fail `retries` times more than once.
    pub fn failed(&mut self, sequence: u64, was_written: bool, retries: u32) -> Failed {
        let Some(attempts) = self.record.open.get_mut(&sequence) else { return Failed::Dead(0) };
        let lost = attempts.lost - u32::from(was_written && attempts.lost > 0);
        let all = attempts.failed + 1 + lost;
        if attempts.failed >= retries {
            return Failed::Dead(all);
        }
        *attempts = Attempts { failed: attempts.failed + 1, lost };
        self.in_progress.remove(&sequence);
        Failed::Again(all)
    }

    /// An attempt was interrupted, as the holder stops: as if it had not begun.
    pub fn interrupted(&mut self, sequence: u64, was_written: bool) {
        self.in_progress.remove(&sequence);
        if let Some(attempts) = self.record.open.get_mut(&sequence) {
            attempts.lost -= u32::from(was_written && attempts.lost > 0);
        }
    }

    /// A handler sends something. Gives its number.
    pub const fn send(&mut self) -> u64 {
        self.record.sent += 1;
        self.record.sent
    }

    fn is_new(&mut self, sender: &str, number: u64, sequence: u64) -> bool {
        let senders = &mut self.record.heard;
        match senders.get_mut(sender) {
            Some((newest, _)) if *newest >= number => return false,
            Some(found) => *found = (number, sequence),
            None => {
                if senders.len() >= self.senders_max {
                    let oldest =
                        senders.iter().min_by_key(|(_, (_, heard_at))| *heard_at).map(|(sender, _)| sender.clone());
                    oldest.map(|oldest| senders.remove(&oldest));
                }
                senders.insert(sender.into(), (number, sequence));
            }
        }
        true
    }
}
