//! Stories of a command.

use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

use super::{Begin, Command, End, Outcome, Stage};

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

#[test]
fn of_two_tokens_the_first_that_comes_stands_for_it() {
    let mut command = Command::new(1);
    assert_eq!((command.begin(3), command.begin(2)), (Begin::Run(1), Begin::Duplicate));
    assert_eq!(command.ended(1, Outcome::Raised), End::Again(500_000));
    assert_eq!((command.begin(2), command.begin(3)), (Begin::Duplicate, Begin::Run(2)));
    assert_eq!((command.ended(2, Outcome::Raised), command.begin(2)), (End::Over(Stage::Failed), Begin::Over));
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
