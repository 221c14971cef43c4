//! The slots of a command worker: which queues it fetches from, which command starts first, and
//! which tokens it gives back.
//!
//! Tokens lie in one queue for each priority. A free slot takes from the most urgent queue that has
//! tokens; if all are empty, the worker waits at all of them. A token that finds no free slot goes
//! back, as another worker may have one. A command that waits for its key leaves its slot to
//! others. Times are microseconds of any clock that does not jump.

use std::collections::{BTreeMap, BTreeSet};

/// Commands that wait for their keys at most; further ones go back to their queue for a while.
const PARKED_MAX: usize = tidewire_proto::generated::limits::COMMAND_PARKED.max as usize;

/// A fetch that is to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Of which queue: 0 is the most urgent.
    pub queue: usize,
    /// How many tokens.
    pub count: u32,
    /// True if the fetch shall wait until there is a token.
    pub waits: bool,
}

/// A token that a worker has: its queue, its sequence, and the ticket of this delivery.
pub type Token = (usize, u64, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Placed,
    Parked,
}

#[derive(Clone, Copy, Debug)]
struct HeldToken {
    queue: usize,
    ticket: u64,
    state: State,
}

/// The known state of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// Nobody has looked since a slot became free.
    Unknown,
    /// A fetch is under way.
    Looking,
    /// The queue was found empty.
    Empty,
    /// The queue was found empty, and a fetch waits for a token.
    Waiting,
}

/// The places of one worker.
#[derive(Clone, Debug)]
pub struct CommandSlots {
    count: usize,
    lease_us: u64,
    queues: Vec<Queue>,
    held: BTreeMap<u64, HeldToken>,
    ready: BTreeSet<(usize, u64)>,
    extend_us: Option<u64>,
    draining: bool,
}

impl CommandSlots {
    /// Slots for `count` commands at once, from so many queues. Tokens of waiting and running
    /// commands need an extension every third of the lease.
    pub fn new(count: usize, queues: usize, lease_us: u64) -> Self {
        Self {
            count: count.max(1),
            lease_us,
            queues: vec![Queue::Unknown; queues],
            held: BTreeMap::new(),
            ready: BTreeSet::new(),
            extend_us: None,
            draining: false,
        }
    }

    fn free(&self) -> usize {
        let taken = self.held.values().filter(|held| held.state != State::Parked).count();
        self.count.saturating_sub(taken)
    }

    /// The fetches to begin now; each ends with [`fetched`](Self::fetched).
    pub fn fetches(&mut self) -> Vec<Fetch> {
        let free = self.free();
        if self.draining || free == 0 {
            return Vec::new();
        }
        let count = u32::try_from(free).unwrap_or(u32::MAX);
        if self.queues.contains(&Queue::Looking) {
            return Vec::new();
        }
        if let Some(queue) = self.queues.iter().position(|queue| *queue == Queue::Unknown) {
            self.queues[queue] = Queue::Looking;
            return vec![Fetch { queue, count, waits: false }];
        }
        let mut fetches = Vec::new();
        for (queue, state) in self.queues.iter_mut().enumerate() {
            if *state == Queue::Empty {
                *state = Queue::Waiting;
                fetches.push(Fetch { queue, count, waits: true });
            }
        }
        fetches
    }

    /// A fetch has ended, perhaps with nothing. Gives the tokens to give back at once.
    pub fn fetched(&mut self, queue: usize, tokens: &[(u64, u64)], now_us: u64) -> Vec<Token> {
        self.queues[queue] = Queue::Empty;
        if !tokens.is_empty() {
            // The next search starts again with the most urgent queue.
            self.look_again();
        }
        let mut back = Vec::new();
        for &(sequence, ticket) in tokens {
            // An older delivery of the same token is stale by now.
            self.ended(sequence);
            if self.draining || self.free() == 0 {
                back.push((queue, sequence, ticket));
                continue;
            }
            self.held.insert(sequence, HeldToken { queue, ticket, state: State::Ready });
            self.ready.insert((queue, sequence));
            self.extend_us.get_or_insert(now_us.saturating_add((self.lease_us / 3).max(1)));
        }
        back
    }

    /// The command that begins now, the most urgent and then the oldest one first. It has a place
    /// until [`ended`](Self::ended).
    pub fn begin(&mut self) -> Option<Token> {
        let (queue, sequence) = self.ready.pop_first()?;
        let held = self.held.get_mut(&sequence).expect("what is ready is held");
        held.state = State::Placed;
        Some((queue, sequence, held.ticket))
    }

    /// A command that was begun waits for its key, and leaves its place. False: too many do, and it
    /// is to go back for a while.
    pub fn park(&mut self, sequence: u64) -> bool {
        let parked = self.held.values().filter(|held| held.state == State::Parked).count();
        match self.held.get_mut(&sequence) {
            Some(held) if held.state == State::Placed && parked < PARKED_MAX => held.state = State::Parked,
            _ => return false,
        }
        self.look_again();
        true
    }

    /// A command has its key. Gives whether there is a place for it; else it is to go back, and its
    /// key too.
    pub fn unpark(&mut self, sequence: u64) -> bool {
        let has_place = self.free() > 0;
        match self.held.get_mut(&sequence) {
            Some(held) if held.state == State::Parked && has_place => {
                held.state = State::Placed;
                true
            }
            _ => false,
        }
    }

    /// A command has ended, or goes back: its token is held no more. Gives whether it was.
    pub fn ended(&mut self, sequence: u64) -> bool {
        let Some(held) = self.held.remove(&sequence) else { return false };
        self.ready.remove(&(held.queue, sequence));
        if self.held.is_empty() {
            self.extend_us = None;
        }
        self.look_again();
        true
    }

    /// A place is free: the queues are looked at again, the most urgent first, but those at which
    /// it waits.
    fn look_again(&mut self) {
        for queue in &mut self.queues {
            if *queue == Queue::Empty {
                *queue = Queue::Unknown;
            }
        }
    }

    /// The tokens to be extended.
    pub fn extend(&mut self, now_us: u64) -> Vec<Token> {
        if self.extend_us.is_none_or(|at| at > now_us) {
            return Vec::new();
        }
        self.extend_us = Some(now_us.saturating_add((self.lease_us / 3).max(1)));
        self.held.iter().map(|(sequence, held)| (held.queue, *sequence, held.ticket)).collect()
    }

    /// When to call [`extend`](Self::extend) next.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.extend_us
    }

    /// Stops fetching. Returns the tokens that have not begun, to be given back.
    pub fn drain(&mut self) -> Vec<Token> {
        self.draining = true;
        let mut back = Vec::new();
        while let Some((queue, sequence)) = self.ready.pop_first() {
            if let Some(held) = self.held.remove(&sequence) {
                back.push((queue, sequence, held.ticket));
            }
        }
        back
    }

    /// How many commands it has, those that wait for their keys among them.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// True if the worker drains, has no commands left, and no fetch is under way.
    pub fn is_over(&self) -> bool {
        let quiet = |queue: &Queue| !matches!(queue, Queue::Looking | Queue::Waiting);
        self.draining && self.held.is_empty() && self.queues.iter().all(quiet)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, any, prop, prop_oneof, proptest};

    use super::{CommandSlots, Fetch, PARKED_MAX};

    const LEASE_US: u64 = 3_000;

    fn look(queue: usize, count: u32) -> Vec<Fetch> {
        vec![Fetch { queue, count, waits: false }]
    }

    // Promises: P17.69.
    #[test]
    fn a_free_place_looks_at_the_most_urgent_queue_first_and_waits_at_all_if_none_has_anything() {
        let mut places = CommandSlots::new(2, 3, LEASE_US);
        for queue in 0..3 {
            assert_eq!(places.fetches(), look(queue, 2));
            assert_eq!(places.fetches(), [], "one look at a time");
            assert_eq!(places.fetched(queue, &[], 0), []);
        }
        let waits = |queue| Fetch { queue, count: 2, waits: true };
        assert_eq!(places.fetches(), [waits(0), waits(1), waits(2)]);
        assert_eq!(places.fetches(), []);
        assert_eq!(places.fetched(2, &[(1, 10), (2, 20)], 0), []);
        assert_eq!((places.begin(), places.begin(), places.begin()), (Some((2, 1, 10)), Some((2, 2, 20)), None));
        assert_eq!(places.fetched(0, &[(3, 30)], 0), [(0, 3, 30)], "no place is free, and another worker may have one");
        assert_eq!(places.fetches(), []);
        assert!(places.ended(1));
        assert_eq!(places.fetches(), look(0, 1), "the most urgent one first, and not where it waits");
    }

    // Promises: P17.72.
    #[test]
    fn a_command_that_waits_for_its_key_leaves_its_place_and_takes_one_if_there_is_one() {
        let mut places = CommandSlots::new(1, 1, LEASE_US);
        assert_eq!(places.fetches(), look(0, 1));
        places.fetched(0, &[(1, 10)], 0);
        assert_eq!(places.begin(), Some((0, 1, 10)));
        assert!(places.park(1));
        assert_eq!(places.fetches(), look(0, 1));
        places.fetched(0, &[(2, 20)], 0);
        assert_eq!(places.begin(), Some((0, 2, 20)));
        assert!(!places.unpark(1), "its place is taken");
        assert!(places.ended(2) && places.unpark(1));
        assert_eq!(places.fetches(), []);
    }

    // Promises: P17.72.
    #[test]
    fn a_key_that_many_wait_for_does_not_fill_the_worker() {
        let mut places = CommandSlots::new(1, 1, LEASE_US);
        for sequence in 0..=PARKED_MAX as u64 {
            assert_eq!(places.fetches(), look(0, 1));
            places.fetched(0, &[(sequence, 1)], 0);
            places.begin();
            assert_eq!(places.park(sequence), sequence < PARKED_MAX as u64);
        }
        assert!(places.ended(PARKED_MAX as u64));
        assert_eq!(places.fetches(), look(0, 1));
    }

    #[test]
    fn all_that_it_has_is_extended_every_third_of_the_lease() {
        let mut places = CommandSlots::new(2, 1, LEASE_US);
        places.fetches();
        assert_eq!(places.next_deadline_us(), None);
        places.fetched(0, &[(1, 10), (2, 20)], 100);
        places.begin();
        assert_eq!((places.extend(1_099), places.next_deadline_us()), (vec![], Some(1_100)));
        assert_eq!(places.extend(1_100), [(0, 1, 10), (0, 2, 20)]);
        assert_eq!(places.next_deadline_us(), Some(2_100));
        places.ended(1);
        places.ended(2);
        assert_eq!((places.extend(9_999), places.next_deadline_us()), (vec![], None));
    }

    #[test]
    fn commands_not_begun_go_back_when_the_worker_drains() {
        let mut places = CommandSlots::new(2, 1, LEASE_US);
        places.fetches();
        places.fetched(0, &[(1, 10), (2, 20)], 0);
        places.begin();
        assert_eq!(places.drain(), [(0, 2, 20)]);
        assert_eq!((places.fetches(), places.is_over()), (vec![], false));
        places.ended(1);
        assert!(places.is_over());
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Fetch,
        Come(usize, usize),
        Begin,
        Park(u64),
        Unpark(u64),
        End(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<bool>().prop_map(|_| Step::Fetch),
            (0..3_usize, 0..4_usize).prop_map(|(fetch, tokens)| Step::Come(fetch, tokens)),
            any::<bool>().prop_map(|_| Step::Begin),
            (0..40_u64).prop_map(Step::Park),
            (0..40_u64).prop_map(Step::Unpark),
            (0..40_u64).prop_map(Step::End),
        ]
    }

    proptest! {
        #[test]
        fn no_more_run_than_there_are_places_and_whoever_has_a_free_one_looks_or_waits(
            count in 1..4_usize,
            steps in prop::collection::vec(step(), 0..120),
        ) {
            let mut places = CommandSlots::new(count, 3, LEASE_US);
            let (mut in_flight, mut newest) = (Vec::<Fetch>::new(), 0);
            for step in steps {
                match step {
                    Step::Fetch => in_flight.extend(places.fetches()),
                    Step::Come(..) if in_flight.is_empty() => {}
                    Step::Come(fetch, tokens) => {
                        let fetch = in_flight.swap_remove(fetch % in_flight.len());
                        let tokens = (0..tokens.min(fetch.count as usize)).map(|_| { newest += 1; (newest, 1) });
                        places.fetched(fetch.queue, &tokens.collect::<Vec<_>>(), 0);
                    }
                    Step::Begin => drop(places.begin()),
                    Step::Park(sequence) => drop(places.park(sequence)),
                    Step::Unpark(sequence) => drop(places.unpark(sequence)),
                    Step::End(sequence) => drop(places.ended(sequence)),
                }
                let taken = places.held.values().filter(|held| held.state != super::State::Parked).count();
                assert!(taken <= count, "{places:?}");
                if places.free() > 0 {
                    in_flight.extend(places.fetches());
                    let looks = in_flight.iter().any(|fetch| !fetch.waits);
                    let queues = in_flight.iter().map(|fetch| fetch.queue).collect::<std::collections::BTreeSet<_>>();
                    assert!(looks || queues.len() == 3, "{in_flight:?} {places:?}");
                    assert_eq!(queues.len(), in_flight.len(), "one fetch of a queue at a time");
                }
            }
        }
    }
}
