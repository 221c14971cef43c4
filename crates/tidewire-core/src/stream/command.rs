//! The state machine of a command: queued, run by one worker at a time, retried after a failure,
//! cancelled, and ended once.
//!
//! The record of a command is stored where every node can read it, and changed by compare-and-set.
//! A writer reads the record, asks this state machine, and writes the result; after a conflict it
//! reads the record anew. Each command also has a token, an event of a queue that one worker has at
//! a time. The worker with the token runs the command.

/// Where a command is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The command waits for a worker, for the first time or for a retry.
    Queued,
    /// A worker is at it.
    Running,
    /// The command has a result.
    Succeeded,
    /// The command has an error, and is not retried.
    Failed,
    /// The command was cancelled before it had a result.
    Cancelled,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 5] = [Self::Queued, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled];

    /// The name for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// True if the command has ended.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// The decision of a worker that has received a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The worker runs the command; this is the attempt, from 1.
    Run(u32),
    /// Nothing: the command is over.
    Over,
    /// Nothing: it was cancelled, and is over now.
    Cancelled,
    /// Nothing: the worker of its last attempt was lost, and it has failed now.
    Lost,
    /// Nothing: another token stands for it, which was queued because it was not known whether this
    /// one had been.
    Duplicate,
}

/// How an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler returned.
    Returned,
    /// The handler raised an error.
    Raised,
    /// The attempt did not begin, as its arguments do not fit: another attempt would not, either.
    Refused,
    /// The attempt was interrupted, as the command was cancelled.
    Cancelled,
    /// Its worker stops: the attempt does not count.
    Interrupted,
}

/// The next step of a command whose attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The command has ended.
    Over(Stage),
    /// The command is retried after this many microseconds.
    Again(u64),
    /// Another attempt has begun meanwhile, or it is over: what this one did does not count.
    Stale,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Where it is.
    pub stage: Stage,
    /// The newest attempt; 0 if there was none.
    pub attempt: u32,
    /// How often it is tried again after an attempt that failed or was lost.
    pub retries: u32,
    /// True if its worker was asked to end it.
    pub is_cancelling: bool,
    /// The sequence of the token that stands for it, once a worker has got one.
    pub token: Option<u64>,
}

const FIRST_DELAY_US: u64 = 500_000;
const LONGEST_DELAY_US: u64 = 60_000_000;

impl Command {
    /// A command that waits for its first attempt.
    pub const fn new(retries: u32) -> Self {
        Self { stage: Stage::Queued, attempt: 0, retries, is_cancelling: false, token: None }
    }

    /// A worker was given a token of it. If it was running, the worker before was lost: only then
    /// is it given to another.
    pub fn begin(&mut self, token: u64) -> Begin {
        match self.stage {
            stage if stage.is_over() => Begin::Over,
            _ if self.token.is_some_and(|own| own != token) => Begin::Duplicate,
            _ if self.is_cancelling => {
                self.stage = Stage::Cancelled;
                Begin::Cancelled
            }
            Stage::Running if self.attempt > self.retries => {
                self.stage = Stage::Failed;
                Begin::Lost
            }
            _ => {
                self.stage = Stage::Running;
                self.token = Some(token);
                self.attempt = self.attempt.saturating_add(1);
                Begin::Run(self.attempt)
            }
        }
    }

    /// True if this attempt is the current one, so that its progress counts.
    pub fn is_current(&self, attempt: u32) -> bool {
        self.stage == Stage::Running && self.attempt == attempt
    }

    /// An attempt has ended.
    pub fn ended(&mut self, attempt: u32, outcome: Outcome) -> End {
        if !self.is_current(attempt) {
            return End::Stale;
        }
        self.stage = match outcome {
            Outcome::Returned => Stage::Succeeded,
            Outcome::Refused => Stage::Failed,
            Outcome::Cancelled if self.is_cancelling => Stage::Cancelled,
            Outcome::Raised | Outcome::Cancelled if attempt > self.retries => Stage::Failed,
            Outcome::Raised | Outcome::Cancelled => {
                self.stage = Stage::Queued;
                let doubled = FIRST_DELAY_US.saturating_mul(1_u64 << u64::from(attempt - 1).min(30));
                return End::Again(doubled.min(LONGEST_DELAY_US));
            }
            Outcome::Interrupted => {
                self.stage = Stage::Queued;
                self.attempt -= 1;
                return End::Again(0);
            }
        };
        End::Over(self.stage)
    }

    /// Requests the end of the command. Returns true if that changes anything: a queued command
    /// ends at once, a running one when its worker has ended it.
    pub const fn cancel(&mut self) -> bool {
        if self.stage.is_over() || self.is_cancelling {
            return false;
        }
        self.is_cancelling = true;
        if matches!(self.stage, Stage::Queued) {
            self.stage = Stage::Cancelled;
        }
        true
    }

    /// Requests a new run, with a new token. Returns true if the command was failed or cancelled.
    pub const fn renew(&mut self) -> bool {
        if !matches!(self.stage, Stage::Failed | Stage::Cancelled) {
            return false;
        }
        *self = Self::new(self.retries);
        true
    }
}

#[cfg(test)]
mod tests;
