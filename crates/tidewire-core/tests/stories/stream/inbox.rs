//! Inboxes of durable agents: crashes at any moment, copies of messages, attempts that fail or end
//! their process.

use std::collections::BTreeMap;

use proptest::prelude::{Strategy, prop, prop_oneof, proptest};
use tidewire_core::stream::inbox::{Begin, Failed, Inbox, Record};

const LOST_MAX: u32 = 2;
const RETRIES: u32 = 1;

/// An agent whose handler writes down what it handles, and sends it on.
struct Agent {
    name: &'static str,
    /// The written state: the record, the messages that were handled by then, and sent messages
    /// that may not be stored.
    written: (Record, Vec<u64>, BTreeMap<u64, u64>, bool),
    inbox: Inbox,
    handled: Vec<u64>,
    outbox: BTreeMap<u64, u64>,
    dead: Vec<u64>,
}

/// A message: its number of its sender, and what it says.
type Stored = (Option<u64>, u64);

impl Agent {
    fn new(name: &'static str) -> Self {
        let written = (Record::default(), Vec::new(), BTreeMap::new(), true);
        let inbox = Inbox::new(Record::default(), 0, LOST_MAX, 4);
        Self { name, written, inbox, handled: Vec::new(), outbox: BTreeMap::new(), dead: Vec::new() }
    }

    fn write(&mut self) {
        self.written = (self.inbox.record().clone(), self.handled.clone(), self.outbox.clone(), false);
    }

    fn crash(&mut self) {
        let (record, handled, outbox, is_left) = self.written.clone();
        self.inbox = Inbox::new(record, u32::from(!is_left), LOST_MAX, 4);
        (self.handled, self.outbox) = (handled, outbox);
    }

    /// Sends what was written and may not be stored.
    fn flush(&mut self, to: &mut Vec<Stored>) {
        for (number, says) in &self.written.2 {
            to.push((Some(*number), *says));
        }
    }

    /// Handles one message. `crashes` is where in it the process ends.
    fn handle(&mut self, sequence: u64, stored: &[Stored], sender: &str, fails: bool, crashes: u32) {
        let (number, says) = stored[usize::try_from(sequence).unwrap() - 1];
        let begun = self.inbox.begin(sequence, number.map(|number| (sender, number)));
        match begun {
            Begin::Run(_) | Begin::RunOnceWritten(_) => {
                let is_written = matches!(begun, Begin::RunOnceWritten(_));
                if is_written {
                    self.write();
                }
                if crashes == 1 {
                    return self.crash();
                }
                if fails {
                    if let Failed::Dead(_) = self.inbox.failed(sequence, is_written, RETRIES) {
                        self.dead.push(says);
                        self.inbox.done(sequence);
                    }
                } else {
                    self.handled.push(says);
                    let number = self.inbox.send();
                    self.outbox.insert(number, says);
                    self.inbox.done(sequence);
                }
                if crashes == 2 {
                    return self.crash();
                }
            }
            Begin::Dead(_) => {
                self.dead.push(says);
                self.inbox.done(sequence);
            }
            Begin::Over | Begin::Copy => {}
        }
        self.write();
    }

    /// The next message that is to be begun: those that were begun before first.
    fn next(&self, stored: &[Stored]) -> Option<u64> {
        let open = self.inbox.open();
        let fresh = self.inbox.record().cursor + 1;
        open.first().copied().or_else(|| (fresh <= stored.len() as u64).then_some(fresh))
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Publish,
    Handle { which: usize, fails: bool, crashes: u32 },
    Flush(usize),
    Crash(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        prop::bool::ANY.prop_map(|_| Step::Publish),
        (0..2_usize, prop::bool::weighted(0.2), 0..4_u32).prop_map(|(which, fails, crashes)| Step::Handle {
            which,
            fails,
            crashes
        }),
        (0..2_usize).prop_map(Step::Flush),
        (0..2_usize).prop_map(Step::Crash),
    ]
}

proptest! {
    // Promises: P17.83, P17.87.
    /// A message that the first agent handles reaches the second once, whichever process ends and
    /// at any time. Nothing is lost.
    #[test]
    fn a_message_is_handled_once_or_given_up_and_what_it_sends_is_so_too(steps in prop::collection::vec(step(), 0..200)) {
        let mut agents = [Agent::new("first"), Agent::new("second")];
        let mut streams: [Vec<Stored>; 3] = [Vec::new(), Vec::new(), Vec::new()];
        let mut published = 0;
        for step in steps {
            match step {
                Step::Publish => {
                    published += 1;
                    streams[0].push((None, published));
                }
                Step::Handle { which, fails, crashes } => {
                    let agent = &mut agents[which];
                    if let Some(sequence) = agent.next(&streams[which]) {
                        agent.handle(sequence, &streams[which], "first", fails, crashes);
                    }
                }
                Step::Flush(which) => agents[which].flush(&mut streams[which + 1]),
                Step::Crash(which) => agents[which].crash(),
            }
        }
        for which in 0..2 {
            agents[which].crash();
            while let Some(sequence) = agents[which].next(&streams[which]) {
                agents[which].handle(sequence, &streams[which], "first", false, 0);
            }
            agents[which].write();
            agents[which].flush(&mut streams[which + 1]);
        }
        let mut came: Vec<u64> = (1..=published).collect();
        for agent in &agents {
            let mut over = agent.handled.clone();
            let handled = over.len();
            over.extend(&agent.dead);
            over.sort_unstable();
            // A dead letter may be reported twice: it is written before the record, and has one
            // place.
            over.dedup();
            assert_eq!(over, came, "{}: each once", agent.name);
            came = agent.handled.clone();
            came.sort_unstable();
            let mut once = came.clone();
            once.dedup();
            assert_eq!((once.len(), handled), (came.len(), came.len()), "{}: none twice", agent.name);
            assert_eq!(agent.inbox.count(), 0);
        }
    }
}

// Promises: P17.92.
#[test]
fn a_message_that_ends_its_process_is_given_up_and_one_that_was_under_way_by_chance_is_not() {
    let mut inbox = Inbox::new(Record::default(), 0, LOST_MAX, 4);
    assert_eq!(inbox.begin(1, None), Begin::Run(1));
    let mut record = Record::default();
    for attempt in 1..=LOST_MAX {
        let mut next = Inbox::new(record.clone(), 1, LOST_MAX, 4);
        assert_eq!(next.begin(1, None), Begin::RunOnceWritten(attempt));
        record = next.record().clone();
    }
    let mut last = Inbox::new(record.clone(), 1, LOST_MAX, 4);
    assert_eq!((last.begin(1, None), last.count()), (Begin::Dead(LOST_MAX), 1), "until it is among the dead letters");
    record.open.get_mut(&1).unwrap().lost = 1;
    let mut stopped = Inbox::new(record, 1, LOST_MAX, 4);
    assert_eq!(stopped.begin(1, None), Begin::RunOnceWritten(2));
    stopped.interrupted(1, true);
    assert_eq!(stopped.record().open[&1].lost, 1, "who stops by itself has lost nothing");
    assert_eq!(stopped.begin(1, None), Begin::Run(2), "one attempt of the holder that was lost was looked for");
    stopped.done(1);
    assert_eq!((stopped.begin(2, None), stopped.needed_from()), (Begin::Run(1), 2));
}

// Promises: P17.90.
#[test]
fn failures_count_up_to_the_retries_and_others_go_on_meanwhile() {
    let mut inbox = Inbox::new(Record::default(), 0, LOST_MAX, 4);
    assert_eq!((inbox.begin(1, None), inbox.begin(2, None)), (Begin::Run(1), Begin::Run(1)));
    assert_eq!(inbox.failed(1, false, 1), Failed::Again(1));
    inbox.done(2);
    assert_eq!((inbox.open(), inbox.needed_from(), inbox.record().cursor), (vec![1], 1, 2));
    assert_eq!((inbox.begin(1, None), inbox.begin(1, None)), (Begin::Run(2), Begin::Over));
    assert_eq!((inbox.failed(1, false, 1), inbox.count()), (Failed::Dead(2), 1), "until it is among the dead letters");
    inbox.done(1);
    assert_eq!((inbox.count(), inbox.needed_from()), (0, 3));
}

#[test]
fn a_sender_that_was_not_heard_of_for_longest_is_forgotten_first() {
    let mut inbox = Inbox::new(Record::default(), 0, LOST_MAX, 2);
    for (sequence, sender) in (1..).zip(["a", "b", "a", "c"]) {
        assert_eq!(inbox.begin(sequence, Some((sender, sequence))), Begin::Run(1));
    }
    assert_eq!(inbox.record().heard.keys().map(String::as_str).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!((inbox.begin(5, Some(("a", 3))), inbox.begin(6, Some(("a", 4)))), (Begin::Copy, Begin::Run(1)));
}
