//! Admission of calls: running, queued and refused calls.

use proptest::prelude::*;
use tidewire_core::rpc::admission::{Admission, Entry};

#[derive(Clone, Debug)]
enum Step {
    Enter(usize),
    Leave,
    GiveUp(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_usize..5).prop_map(Step::Enter),
        2 => Just(Step::Leave),
        1 => (0_usize..60).prop_map(Step::GiveUp),
    ]
}

proptest! {
    /// The limits hold, and those that wait begin by priority, then in the order in which they
    /// came.
    #[test]
    fn the_most_urgent_that_came_first_is_next(running_max in 1_usize..5, waiting_max in 0_usize..8, steps in proptest::collection::vec(step(), 0..120)) {
        let mut admission = Admission::new(running_max, waiting_max);
        let (mut running, mut waiting) = (0, Vec::<(usize, usize)>::new());
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enter(lane) => {
                    let entry = admission.enter(number, lane);
                    if running < running_max {
                        running += 1;
                        prop_assert_eq!(entry, Entry::Admitted(number));
                    } else if waiting.len() < waiting_max {
                        waiting.push((lane.min(3), number));
                        prop_assert_eq!(entry, Entry::Queued);
                    } else {
                        prop_assert_eq!(entry, Entry::Refused(number));
                    }
                }
                Step::Leave => {
                    if running == 0 { continue }
                    let next = waiting.iter().min().copied();
                    waiting.retain(|one| Some(*one) != next);
                    prop_assert_eq!(admission.leave(), next.map(|(_, number)| number));
                    if next.is_none() { running -= 1; }
                }
                Step::GiveUp(which) => {
                    let was_there = waiting.iter().any(|(_, number)| *number == which);
                    prop_assert_eq!(admission.remove(|one| *one == which), was_there.then_some(which));
                    waiting.retain(|(_, number)| *number != which);
                }
            }
            prop_assert_eq!((admission.running(), admission.waiting()), (running, waiting.len()));
            waiting.sort_unstable();
            prop_assert!(admission.queued().eq(waiting.iter().map(|(_, number)| number)));
        }
    }
}
