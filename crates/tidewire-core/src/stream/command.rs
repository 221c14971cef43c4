//! The life of a command: queued, run by one worker at a time, tried again if it fails, cancelled, and over once.
//!
//! The record of a command is kept where all can read it, and changed by compare-and-set. Whoever changes it reads it, asks
//! this machine, and writes what the machine says; if somebody else was faster, it reads anew.

/// Where a command is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It waits for a worker, for the first time or to be tried again.
    Queued,
    /// A worker is at it.
    Running,
    /// It has a result.
    Succeeded,
    /// It has an error, and is not tried again.
    Failed,
    /// It was cancelled before it had a result.
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

    /// Whether nothing more becomes of it.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// What a worker does that was given a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It runs the command; this is the attempt, from 1.
    Run(u32),
    /// Nothing: the command is over.
    Over,
    /// Nothing: it was cancelled, and is over now.
    Cancelled,
    /// Nothing: the worker of its last attempt was lost, and it has failed now.
    Lost,
}

/// How an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It returned.
    Returned,
    /// It raised.
    Raised,
    /// It was interrupted, as the command was cancelled.
    Cancelled,
    /// Its worker stops: the attempt does not count.
    Interrupted,
}

/// What becomes of a command whose attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is over.
    Over(Stage),
    /// It is tried again after this many microseconds.
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
    /// Whether its worker was asked to end it.
    pub is_cancelling: bool,
}

const FIRST_DELAY_US: u64 = 500_000;
const LONGEST_DELAY_US: u64 = 60_000_000;

impl Command {
    /// A command that waits for its first attempt.
    pub const fn new(retries: u32) -> Self {
        Self { stage: Stage::Queued, attempt: 0, retries, is_cancelling: false }
    }

    /// A worker was given it. If it was running, the worker before was lost: only then is it given to another.
    pub const fn begin(&mut self) -> Begin {
        match self.stage {
            stage if stage.is_over() => Begin::Over,
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
                self.attempt = self.attempt.saturating_add(1);
                Begin::Run(self.attempt)
            }
        }
    }

    /// Whether an attempt is the one that runs, so that its progress counts.
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

    /// Somebody wants it to end. Gives whether that changes anything: a queued one is over at once, one that runs when its
    /// worker has ended it.
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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

    use super::{Begin, Command, End, Outcome, Stage};

    #[test]
    fn it_is_tried_again_after_longer_and_longer_pauses_until_it_has_failed() {
        let mut command = Command::new(2);
        assert_eq!((command.begin(), command.ended(1, Outcome::Raised)), (Begin::Run(1), End::Again(500_000)));
        assert_eq!((command.begin(), command.ended(2, Outcome::Raised)), (Begin::Run(2), End::Again(1_000_000)));
        assert_eq!((command.begin(), command.ended(3, Outcome::Raised)), (Begin::Run(3), End::Over(Stage::Failed)));
        assert_eq!(command.begin(), Begin::Over);
    }

    #[test]
    fn a_worker_that_is_lost_has_used_up_an_attempt_and_one_that_stops_has_not() {
        let mut command = Command::new(1);
        assert_eq!((command.begin(), command.ended(1, Outcome::Interrupted)), (Begin::Run(1), End::Again(0)));
        assert_eq!(command.begin(), Begin::Run(1));
        assert_eq!(command.begin(), Begin::Run(2));
        assert_eq!(command.ended(1, Outcome::Returned), End::Stale, "the first goes on without knowing");
        assert_eq!((command.begin(), command.stage), (Begin::Lost, Stage::Failed));
    }

    #[test]
    fn what_is_queued_is_cancelled_at_once_and_what_runs_by_its_worker_or_the_next() {
        let mut queued = Command::new(0);
        assert!(queued.cancel() && !queued.cancel());
        assert_eq!((queued.stage, queued.begin()), (Stage::Cancelled, Begin::Over));
        let mut running = Command::new(3);
        running.begin();
        assert!(running.cancel());
        assert_eq!(running.stage, Stage::Running);
        let mut lost = running;
        assert_eq!((lost.begin(), lost.stage), (Begin::Cancelled, Stage::Cancelled));
        assert_eq!(running.ended(1, Outcome::Cancelled), End::Over(Stage::Cancelled));
        assert!(!running.cancel());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin,
        End(u32, Outcome),
        Cancel,
    }

    fn step() -> impl Strategy<Value = Step> {
        let outcome =
            prop::sample::select(vec![Outcome::Returned, Outcome::Raised, Outcome::Cancelled, Outcome::Interrupted]);
        prop_oneof![
            any::<bool>().prop_map(|_| Step::Begin),
            (0..6_u32, outcome).prop_map(|(attempt, outcome)| Step::End(attempt, outcome)),
            any::<bool>().prop_map(|_| Step::Cancel),
        ]
    }

    proptest! {
        #[test]
        fn once_it_is_over_it_stays_as_it_is_and_it_never_has_more_attempts_than_allowed(
            retries in 0..4_u32,
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let mut command = Command::new(retries);
            for step in steps {
                let before = command;
                match step {
                    Step::Begin => drop(command.begin()),
                    Step::End(attempt, outcome) => drop(command.ended(attempt, outcome)),
                    Step::Cancel => drop(command.cancel()),
                }
                assert!(!before.stage.is_over() || command == before, "{before:?} became {command:?}");
                assert!(command.attempt <= retries + 1, "{command:?}");
            }
        }
    }
}
