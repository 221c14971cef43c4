//! Deadlines at their time.

use super::*;

struct NoopFire;

impl Fire for NoopFire {
    fn fire(self: Arc<Self>) {}
}

fn put(deadlines: &Deadlines, at: u64) -> DeadlineKey {
    deadlines.insert(at, Arc::new(NoopFire))
}

#[test]
fn only_what_is_still_there_when_the_first_is_due_moves_and_it_moves_once() {
    let deadlines = Deadlines::new();
    let mut wheel = tidewire_core::wheel::Wheel::default();
    let gone = put(&deadlines, 10);
    let left_keys: Vec<_> = (0..1_000).map(|n| put(&deadlines, 20 + n)).collect();
    assert!(matches!(deadlines.remove(gone), CancelOutcome::Over));
    assert_eq!(deadlines.earliest(), 10, "what was taken back may wake the watcher once for nothing");

    deadlines.move_due(9, |_| 0, |at, fire| wheel.insert(at, fire));
    assert_eq!(wheel.len(), 0);
    deadlines.move_due(10, |_| 0, |at, fire| wheel.insert(at, fire));
    assert_eq!((wheel.len(), deadlines.waiting(), deadlines.earliest()), (1_000, 0, u64::MAX));
    deadlines.move_due(u64::MAX, |_| 0, |_, _| unreachable!("all have moved"));

    for key in left_keys {
        let CancelOutcome::InWheel(at) = deadlines.remove(key) else { panic!("{key:?} is in the wheel") };
        assert!(wheel.remove(at).is_some());
        assert!(matches!(deadlines.remove(key), CancelOutcome::Over), "a key names one deadline for ever");
    }
    assert_eq!(deadlines.waiting(), 0);
}

#[test]
fn an_empty_shard_gives_its_memory_back_and_old_keys_stay_dead() {
    let deadlines = Deadlines::new();
    let keys: Vec<_> = (0..5_000).map(|n| put(&deadlines, n)).collect();
    keys.iter().for_each(|key| assert!(matches!(deadlines.remove(*key), CancelOutcome::Over)));
    assert!(deadlines.shards.iter().all(|shard| shard.lock().entries.capacity() <= KEEP));
    let new = put(&deadlines, 1);
    keys.iter().for_each(|key| assert!(matches!(deadlines.remove(*key), CancelOutcome::Over)));
    assert_eq!(deadlines.waiting(), 1);
    deadlines.remove(new);
    assert_eq!(deadlines.waiting(), 0);
}
