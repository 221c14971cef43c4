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
    Running,
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
    /// No fetch has begun since a slot became free.
    Unknown,
    /// A fetch is under way.
    Fetching,
    /// The queue was found empty.
    Empty,
    /// The queue was found empty, and a fetch waits for a token.
    Waiting,
}

/// The slots of one worker.
#[derive(Clone, Debug)]
pub struct CommandSlots {
    count: usize,
    lease_us: u64,
    queues: Vec<Queue>,
    tokens: BTreeMap<u64, HeldToken>,
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
            tokens: BTreeMap::new(),
            ready: BTreeSet::new(),
            extend_us: None,
            draining: false,
        }
    }

    fn free(&self) -> usize {
        let busy = self.tokens.values().filter(|token| token.state != State::Parked).count();
        self.count.saturating_sub(busy)
    }

    /// The fetches to begin now; each ends with [`fetched`](Self::fetched).
    pub fn fetches(&mut self) -> Vec<Fetch> {
        let free = self.free();
        if self.draining || free == 0 {
            return Vec::new();
        }
        let count = u32::try_from(free).unwrap_or(u32::MAX);
        if self.queues.contains(&Queue::Fetching) {
            return Vec::new();
        }
        if let Some(queue) = self.queues.iter().position(|queue| *queue == Queue::Unknown) {
            self.queues[queue] = Queue::Fetching;
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
            self.reset_empty_queues();
        }
        let mut back = Vec::new();
        for &(sequence, ticket) in tokens {
            // An older delivery of the same token is stale by now.
            self.ended(sequence);
            if self.draining || self.free() == 0 {
                back.push((queue, sequence, ticket));
                continue;
            }
            self.tokens.insert(sequence, HeldToken { queue, ticket, state: State::Ready });
            self.ready.insert((queue, sequence));
            self.extend_us.get_or_insert(now_us.saturating_add((self.lease_us / 3).max(1)));
        }
        back
    }

    /// The command that begins now, the most urgent and then the oldest one first. It has a slot
    /// until [`ended`](Self::ended).
    pub fn begin(&mut self) -> Option<Token> {
        let (queue, sequence) = self.ready.pop_first()?;
        let token = self.tokens.get_mut(&sequence).expect("a ready token is stored");
        token.state = State::Running;
        Some((queue, sequence, token.ticket))
    }

    /// A running command waits for its key, and frees its slot. False: too many wait already.
    pub fn park(&mut self, sequence: u64) -> bool {
        let parked = self.tokens.values().filter(|token| token.state == State::Parked).count();
        match self.tokens.get_mut(&sequence) {
            Some(token) if token.state == State::Running && parked < PARKED_MAX => token.state = State::Parked,
            _ => return false,
        }
        self.reset_empty_queues();
        true
    }

    /// A command has its key. False: no slot is free; give the command and its key back.
    pub fn unpark(&mut self, sequence: u64) -> bool {
        let has_slot = self.free() > 0;
        match self.tokens.get_mut(&sequence) {
            Some(token) if token.state == State::Parked && has_slot => {
                token.state = State::Running;
                true
            }
            _ => false,
        }
    }

    /// Removes the token of a command that has ended or goes back. False: there was none.
    pub fn ended(&mut self, sequence: u64) -> bool {
        let Some(token) = self.tokens.remove(&sequence) else { return false };
        self.ready.remove(&(token.queue, sequence));
        if self.tokens.is_empty() {
            self.extend_us = None;
        }
        self.reset_empty_queues();
        true
    }

    /// A slot is free: queues that were found empty are fetched from again, the most urgent first.
    /// Queues with a waiting fetch keep theirs.
    fn reset_empty_queues(&mut self) {
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
        self.tokens.iter().map(|(sequence, token)| (token.queue, *sequence, token.ticket)).collect()
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
            if let Some(token) = self.tokens.remove(&sequence) {
                back.push((queue, sequence, token.ticket));
            }
        }
        back
    }

    /// How many commands it has, those that wait for their keys among them.
    pub fn held(&self) -> usize {
        self.tokens.len()
    }

    /// True if the worker drains, has no commands left, and no fetch is under way.
    pub fn is_over(&self) -> bool {
        let quiet = |queue: &Queue| !matches!(queue, Queue::Fetching | Queue::Waiting);
        self.draining && self.tokens.is_empty() && self.queues.iter().all(quiet)
    }
}

#[cfg(test)]
mod tests;
