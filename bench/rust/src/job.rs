//! Job of one run: a workload, a contender and their sizes.

/// The workloads, named as in `bench/README.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A1 and A7: one sender, one actor, `count` words; `idle` other actors exist.
    Storm,
    /// A2: `actors` actors, each sends `count` words round robin to the others.
    Exchange,
    /// A3: `count` round trips between two actors, one after another.
    PingHot,
    /// A3: `count` one-way messages across threads, each after 1 ms of idleness.
    PingIdle,
    /// A4: `count` requests, `in_flight` at a time.
    Ask,
    /// A5: `count` actors, then left idle.
    Spawn,
    /// A6: `count` timers, half of them cancelled; then schedule and cancel in one loop.
    Timers,
    /// A6: `count` timers due at 100 ms; how late is the last?
    TimersDue,
    /// A8: `count` messages to `actors` subscribers.
    FanOut,
    /// A9: `count` bursts of 500 messages, one every 2 ms.
    Burst,
    /// A bare limit of the host: wake-ups, atomics, the clock.
    Limit,
}

/// Every workload with its name on the command line.
const WORKLOADS: &[(&str, Workload)] = &[
    ("a1", Workload::Storm),
    ("a2", Workload::Exchange),
    ("a3-hot", Workload::PingHot),
    ("a3-idle", Workload::PingIdle),
    ("a4", Workload::Ask),
    ("a5", Workload::Spawn),
    ("a6", Workload::Timers),
    ("a6-due", Workload::TimersDue),
    ("a8", Workload::FanOut),
    ("a9", Workload::Burst),
    ("limit", Workload::Limit),
];

impl Workload {
    /// Its name on the command line and in the output.
    pub fn id(self) -> &'static str {
        WORKLOADS.iter().find(|(_, workload)| *workload == self).map_or("?", |(id, _)| id)
    }

    pub(crate) fn wants_warm_up(self) -> bool {
        use Workload::{Ask, Exchange, FanOut, PingHot, Storm};
        matches!(self, Storm | Exchange | PingHot | Ask | FanOut)
    }

    fn usual_count(self) -> u64 {
        match self {
            Workload::Storm => 10_000_000,
            Workload::Exchange | Workload::FanOut => 10_000,
            Workload::PingHot => 500_000,
            Workload::PingIdle => 2_000,
            Workload::Ask | Workload::Spawn | Workload::Timers | Workload::Limit => 1_000_000,
            Workload::TimersDue => 100_000,
            Workload::Burst => 500,
        }
    }
}

/// One run, as asked for on the command line.
#[derive(Clone, Debug)]
pub struct Job {
    pub contender: String,
    pub workload: Workload,
    /// How many of whatever the workload counts.
    pub count: u64,
    /// Actors that take part (A2, A8).
    pub actors: usize,
    /// Actors that exist and never receive anything (A7).
    pub idle: usize,
    /// Requests in flight at once (A4).
    pub in_flight: usize,
    /// Threads that run actors. One means the contender's single-threaded form where it has one.
    pub threads: usize,
    /// Places in each mailbox, where the contender bounds them.
    pub mailbox: usize,
}

impl Job {
    /// Reads `--key value` pairs.
    ///
    /// # Errors
    /// If a key is unknown, a value is missing or is not what the key takes.
    pub fn parse(arguments: &[String]) -> Result<Job, String> {
        let mut contender = None;
        let mut workload = None;
        let mut count = None;
        let mut job = Job {
            contender: String::new(),
            workload: Workload::Storm,
            count: 0,
            actors: 50,
            idle: 0,
            in_flight: 1,
            threads: 1,
            mailbox: 10_000,
        };
        for pair in arguments.chunks(2) {
            let [key, value] = pair else {
                return Err(format!("{} needs a value", pair[0]));
            };
            match key.as_str() {
                "--contender" => contender = Some(value.clone()),
                "--workload" => workload = Some(workload_named(value)?),
                "--count" => count = Some(number(key, value)?),
                "--actors" => job.actors = number(key, value)? as usize,
                "--idle" => job.idle = number(key, value)? as usize,
                "--in-flight" => job.in_flight = number(key, value)?.max(1) as usize,
                "--threads" => job.threads = number(key, value)?.max(1) as usize,
                "--mailbox" => job.mailbox = number(key, value)?.max(1) as usize,
                _ => return Err(format!("{key}: unknown; see bench/README.md")),
            }
        }
        job.contender = contender.ok_or("--contender is missing")?;
        job.workload = workload.ok_or("--workload is missing")?;
        job.count = count.unwrap_or(job.workload.usual_count());
        Ok(job)
    }
}

fn workload_named(value: &str) -> Result<Workload, String> {
    let known = WORKLOADS.iter().find(|(id, _)| *id == value);
    known.map(|(_, workload)| *workload).ok_or_else(|| {
        let names: Vec<&str> = WORKLOADS.iter().map(|(id, _)| *id).collect();
        format!("--workload {value}: not one of {}", names.join(", "))
    })
}

fn number(key: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{key} {value}: not a whole number"))
}
