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
mod tests {
    use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

    use super::{Begin, Command, End, Outcome, Stage};

    // Promises: P17.67.
    #[test]
    fn it_is_tried_again_after_longer_and_longer_pauses_until_it_has_failed() {
        let mut command = Command::new(2);
        assert_eq!((command.begin(7), command.ended(1, Outcome::Raised)), (Begin::Run(1), End::Again(500_000)));
        assert_eq!((command.begin(7), command.ended(2, Outcome::Raised)), (Begin::Run(2), End::Again(1_000_000)));
        assert_eq!((command.begin(7), command.ended(3, Outcome::Raised)), (Begin::Run(3), End::Over(Stage::Failed)));
        assert_eq!(command.begin(7), Begin::Over);
    }

    // Promises: P17.63, P17.65, P17.67.
    #[test]
    fn a_worker_that_is_lost_has_used_up_an_attempt_and_one_that_stops_has_not() {
        let mut command = Command::new(1);
        assert_eq!((command.begin(7), command.ended(1, Outcome::Interrupted)), (Begin::Run(1), End::Again(0)));
        assert_eq!(command.begin(7), Begin::Run(1));
        assert_eq!(command.begin(7), Begin::Run(2));
        assert_eq!(command.ended(1, Outcome::Returned), End::Stale, "the first goes on without knowing");
        assert_eq!((command.begin(7), command.stage), (Begin::Lost, Stage::Failed));
    }

    // Promises: P17.73.
    #[test]
    fn a_queued_command_is_cancelled_at_once_and_a_running_one_by_its_worker_or_the_next() {
        let mut queued = Command::new(0);
        assert!(queued.cancel() && !queued.cancel());
        assert_eq!((queued.stage, queued.begin(7)), (Stage::Cancelled, Begin::Over));
        let mut running = Command::new(3);
        running.begin(7);
        assert!(running.cancel());
        assert_eq!(running.stage, Stage::Running);
        let mut lost = running;
        assert_eq!((lost.begin(7), lost.stage), (Begin::Cancelled, Stage::Cancelled));
        assert_eq!(running.ended(1, Outcome::Cancelled), End::Over(Stage::Cancelled));
        assert!(!running.cancel());
    }

    // Promises: P17.68.
    #[test]
    fn a_command_that_cannot_begin_is_not_tried_again() {
        let mut command = Command::new(5);
        command.begin(7);
        assert_eq!(command.ended(1, Outcome::Refused), End::Over(Stage::Failed));
    }

    #[test]
    fn of_two_tokens_the_first_that_comes_stands_for_it() {
        let mut command = Command::new(1);
        assert_eq!((command.begin(3), command.begin(2)), (Begin::Run(1), Begin::Duplicate));
        assert_eq!(command.ended(1, Outcome::Raised), End::Again(500_000));
        assert_eq!((command.begin(2), command.begin(3)), (Begin::Duplicate, Begin::Run(2)));
        assert_eq!((command.ended(2, Outcome::Raised), command.begin(2)), (End::Over(Stage::Failed), Begin::Over));
    }

    #[test]
    fn a_failed_or_cancelled_command_begins_anew_with_another_token() {
        let mut command = Command::new(0);
        assert!(!command.renew(), "it is queued");
        command.begin(3);
        assert!(!command.renew(), "it runs");
        command.ended(1, Outcome::Raised);
        assert!(command.renew());
        assert_eq!(
            (command.begin(9), command.ended(1, Outcome::Returned)),
            (Begin::Run(1), End::Over(Stage::Succeeded))
        );
        assert!(!command.renew(), "it has its result");
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin(u64),
        End(u32, Outcome),
        Cancel,
    }

    fn step() -> impl Strategy<Value = Step> {
        let outcome = prop::sample::select(vec![
            Outcome::Returned,
            Outcome::Raised,
            Outcome::Refused,
            Outcome::Cancelled,
            Outcome::Interrupted,
        ]);
        prop_oneof![
            (0..2_u64).prop_map(Step::Begin),
            (0..6_u32, outcome).prop_map(|(attempt, outcome)| Step::End(attempt, outcome)),
            any::<bool>().prop_map(|_| Step::Cancel),
        ]
    }

    proptest! {
        // Promises: P17.62.
        #[test]
        fn once_it_is_over_it_stays_as_it_is_and_it_never_has_more_attempts_than_allowed(
            retries in 0..4_u32,
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let mut command = Command::new(retries);
            for step in steps {
                let before = command;
                match step {
                    Step::Begin(token) => drop(command.begin(token)),
                    Step::End(attempt, outcome) => drop(command.ended(attempt, outcome)),
                    Step::Cancel => drop(command.cancel()),
                }
                assert!(!before.stage.is_over() || command == before, "{before:?} became {command:?}");
                assert!(command.attempt <= retries + 1, "{command:?}");
                assert!(before.token.is_none() || command.token == before.token, "{before:?} became {command:?}");
            }
        }
    }
}
