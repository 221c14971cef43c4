//! Runs one workload for one contender and prints one line of JSON.
//!
//! ```text
//! engine-bench --contender actix --workload a1 --count 10000000 --threads 1
//! engine-bench --list
//! ```

use std::process::ExitCode;

pub mod contenders;
pub mod job;
pub mod outcome;
pub mod pacing;
pub mod probe;

use job::{Job, Workload};

/// The whole program; `allocator` is only named in the output.
pub fn main(allocator: &str) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        return list();
    }
    let job = match Job::parse(&arguments) {
        Ok(job) => job,
        Err(message) => return refuse(&message),
    };
    let Some(contender) = contenders::find(&job.contender) else {
        return refuse(&format!("--contender {}: not one of those that --list names", job.contender));
    };
    warm_up(contender, &job);
    match (contender.run)(&job) {
        Some(outcome) => {
            println!("{}", outcome.to_json(allocator, &job));
            ExitCode::SUCCESS
        }
        None => refuse(&format!("{} has no form of workload {}", job.contender, job.workload.id())),
    }
}

/// One untimed round at a twentieth of the size: page faults and lazy set-up belong to nobody's
/// figure. Memory and latency workloads go without, as it would blur what they measure.
fn warm_up(contender: &contenders::Contender, job: &Job) {
    if job.workload.wants_warm_up() {
        // An exchange is short, and its mailboxes must have grown once.
        let share = if job.workload == Workload::Exchange { 1 } else { 20 };
        let small = Job { count: (job.count / share).max(1), idle: 0, ..job.clone() };
        (contender.run)(&small);
    }
}

fn list() -> ExitCode {
    for contender in contenders::ALL {
        println!("{}", contender.name);
    }
    ExitCode::SUCCESS
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("engine-bench: {message}");
    ExitCode::from(2)
}
