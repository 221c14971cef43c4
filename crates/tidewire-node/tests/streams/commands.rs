//! Commands at hubs of Rust and of Python: started, followed and found again by their ids.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidewire_node::streams::{Command, CommandRun, Stage, StartOptions};
use tidewire_node::{ErrorCode, Failure, Node, NodeOptions, Priority, Service};
use tokio::sync::{Semaphore, mpsc};

use crate::hubs::{Folder, Place};
use crate::support::python::Python;
use crate::support::{in_time, join};

/// A hub with a data folder, a worker of Python, and a node that has joined the hub. Commands
/// complete once the test lets them.
struct Site {
    python: Python,
    node: Node,
    _hub: Option<Node>,
    _folder: Folder,
}

impl Site {
    fn new(is_rust: bool) -> Option<Self> {
        let folder = Folder::new();
        let listen = || Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub").data(&folder.0)).wait();
        let hub = is_rust.then(|| listen().expect("a hub with a folder"));
        let place = hub.as_ref().map_or_else(|| folder.0.to_string_lossy().into_owned(), |hub| hub.urls()[0].clone());
        let python = Python::start_with("commands.py", &[&place])?;
        let node = Node::join(&python.line(), NodeOptions::named("shop")).wait().expect("it joins");
        Some(Self { python, node, _hub: hub, _folder: folder })
    }

    /// One with a hub of Rust, and one with a hub of Python.
    fn all() -> impl Iterator<Item = Self> {
        [true, false].into_iter().filter_map(Self::new)
    }
}

#[test]
fn a_command_is_started_before_somebody_does_it_followed_and_found_again() {
    Site::all().for_each(follow_a_command);
}

fn follow_a_command(Site { mut python, node, .. }: Site) {
    let commands = node.commands();
    let options = || StartOptions::default().key("shard-7").id("north-7").priority(Priority::High);
    let run = in_time(commands.start_with("books", "reindex", &(7,), options()));
    let info = in_time(run.info());
    assert_eq!(
        (info.stage, info.attempt, info.key.as_deref(), info.caller.as_str()),
        (Stage::Queued, 0, Some("shard-7"), "shop")
    );
    assert_eq!((info.priority.as_str(), info.worker, info.began, info.ended), ("high", None, None, None));
    assert!(info.created.elapsed().is_ok_and(|ago| ago < Duration::from_secs(600)));
    assert_eq!(in_time(run.result_within::<()>(Duration::from_millis(1))), None);
    let again = in_time(commands.start_with("books", "reindex", &(7,), options()));
    assert_eq!(again.id(), run.id());
    let other = commands.start_with("books", "reindex", &(8,), options()).wait().expect_err("it has other arguments");
    assert_eq!(other.code(), ErrorCode::SettingsDiffer);
    python.go_on();
    let mut reports = run.progress();
    for part in [1, 2] {
        let report = reports.next_blocking().expect("it goes on").expect("it is told");
        assert_eq!((report.fraction, report.note, report.attempt), (f64::from(part) / 2.0, format!("part {part}"), 1));
        python.go_on();
    }
    assert!(reports.next_blocking().is_none());
    let found: CommandRun = commands.find("north-7");
    let result: BTreeMap<String, tidewire_node::values::Value> = in_time(found.result());
    assert_eq!((result["shard"].as_i64(), result["name"].as_str()), (Some(7), Some("all")));
    let listed = in_time(commands.list(Some("books")));
    assert_eq!((listed.len(), listed[0].stage, listed[0].id.as_str()), (1, Stage::Succeeded, "north-7"));
    assert_eq!(in_time(commands.list(Some("others"))), []);
}

#[test]
fn arguments_go_by_position_and_by_name_and_what_fails_is_told() {
    Site::all().for_each(fail_commands);
}

fn fail_commands(Site { mut python, node, .. }: Site) {
    python.go_on();
    let commands = node.commands();
    let run = in_time(commands.start("books", "close_year", &2026));
    assert_eq!(in_time(run.result::<String>()), "2026 is closed");
    assert_eq!(in_time(run.info()).attempt, 2);
    let named = BTreeMap::from([("year", 2027)]);
    let failed = in_time(commands.start("books", "audit", &named));
    let error = failed.result::<()>().wait().expect_err("it has raised");
    assert_eq!(error.remote().map(|raised| raised.type_name.as_str()), Some("builtins:LookupError"));
    assert!(error.to_string().contains("no balance of 2026"), "{error}");
    assert!(in_time(failed.info()).error.contains("LookupError"));
    assert!(in_time(failed.retry()) && failed.result::<()>().wait().is_err());
    let unfit = in_time(commands.start("books", "audit", &("many", 2)));
    assert!(unfit.result::<()>().wait().is_err());
    let waits = in_time(commands.start("books", "waits", &()));
    assert!(in_time(waits.cancel()));
    assert_eq!(waits.result::<()>().wait().expect_err("it was cancelled").code(), ErrorCode::CallCancelled);
    assert_eq!(in_time(waits.info()).stage, Stage::Cancelled);
    let nothing = commands.find("nothing");
    assert_eq!(nothing.result::<()>().wait().expect_err("there is none").code(), ErrorCode::NotFound);
    assert_eq!(nothing.progress().next_blocking().expect("an error").expect_err("none").code(), ErrorCode::NotFound);
    for (service, id) in [("a b", "x"), ("books", "x y")] {
        let wrong = commands.start_with(service, "audit", &1, StartOptions::default().id(id)).wait();
        assert_eq!(wrong.expect_err("it is no name").code(), ErrorCode::InvalidArgument);
    }
}

#[test]
fn a_hub_without_a_place_for_commands_is_named() {
    let hub = Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("a hub");
    let told = hub.commands().start("books", "audit", &1).wait().expect_err("it has none");
    assert!(told.code() == ErrorCode::NoResponders && told.to_string().contains("tidewire up --data DIR"), "{told}");
}

/// The commands of a service of Rust. Each attempt says that it has begun, and waits for a permit.
#[derive(Clone)]
struct Books {
    begun: mpsc::Sender<(String, u32)>,
    permits: Arc<Semaphore>,
    at_once: Arc<AtomicU32>,
    most_at_once: Arc<AtomicU32>,
}

impl Books {
    fn new() -> (Self, mpsc::Receiver<(String, u32)>) {
        let (begun, attempts) = mpsc::channel(16);
        (
            Self { begun, permits: Arc::new(Semaphore::new(0)), at_once: Arc::default(), most_at_once: Arc::default() },
            attempts,
        )
    }

    fn service(&self) -> Service {
        let (books, audits) = (self.clone(), self.clone());
        let reindex = Command::new("reindex", &["shard", "name"], move |run, (shard, name): (u32, Option<String>)| {
            let books = books.clone();
            async move {
                books.begun.try_send((run.id().to_owned(), run.attempt()))?;
                run.report(0.5, "half");
                books.most_at_once.fetch_max(books.at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let _running = RunningAttempt(&books.at_once);
                books.permits.acquire().await?.forget();
                Ok((shard, name.unwrap_or_else(|| "all".to_owned())))
            }
        });
        let audit = Command::new("audit", &["fails"], move |run, fails: u32| {
            audits.begun.try_send((run.id().to_owned(), run.attempt())).expect("the channel has capacity");
            async move {
                if run.attempt() <= fails {
                    return Err(Failure::new("books:Broken", "no balance"));
                }
                Ok(run.attempt())
            }
        });
        let slow = Command::new("slow", &[], |_, ()| std::future::pending::<Result<(), Failure>>());
        Service::new("books")
            .with_command(reindex.exclusive_by_key().concurrency(4))
            .with_command(audit.retries(1))
            .with_command(slow.retries(0).timeout(Duration::from_millis(20)))
    }
}

/// Counts an attempt until it has ended or was dropped.
struct RunningAttempt<'a>(&'a AtomicU32);

impl Drop for RunningAttempt<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_service_of_rust_runs_commands_with_reports_keys_and_retries() {
    let place = Place::new();
    let (books, mut begun) = Books::new();
    let worker = join(&place.hub, "worker");
    worker.serve(books.service()).wait().expect("it is served");
    let listed =
        in_time(place.node.services()).into_iter().find(|service| service.name == "books").expect("it is listed");
    let told: Vec<_> = listed.commands.iter().map(|one| (&*one.name, one.exclusive.as_deref(), one.retries)).collect();
    assert_eq!(told, [("reindex", Some("key"), 3), ("audit", None, 1), ("slow", None, 0)]);
    assert!(listed.commands[0].parameters["properties"]["shard"].is_object());
    let commands = place.node.commands();
    let keyed = || StartOptions::default().key("north");
    let runs: Vec<_> =
        (0..2).map(|shard| in_time(commands.start_with("books", "reindex", &(shard, "x"), keyed()))).collect();
    let (first, attempt) = begun.blocking_recv().expect("one begins");
    let report = in_time_report(&commands.find(&first));
    assert_eq!((report, attempt), ((0.5, "half".to_owned()), 1));
    assert_eq!(in_time(commands.find(&first).info()).worker.as_deref(), Some("worker"));
    assert_eq!(in_time(in_time(commands.start("books", "audit", &0)).result::<u32>()), 1, "others go on");
    books.permits.add_permits(2);
    for (shard, run) in runs.iter().enumerate() {
        assert_eq!(in_time(run.result::<(usize, String)>()), (shard, "x".to_owned()));
    }
    assert_eq!(books.most_at_once.load(Ordering::SeqCst), 1, "one of a key at a time");
    assert_eq!(in_time(in_time(commands.start("books", "audit", &1)).result::<u32>()), 2, "it is retried");
    let failed = in_time(commands.start("books", "audit", &2));
    let error = failed.result::<()>().wait().expect_err("it fails twice");
    assert_eq!(error.remote().map(|raised| raised.type_name.as_str()), Some("books:Broken"));
    let info = in_time(failed.info());
    assert_eq!((info.stage, info.attempt, info.error.as_str()), (Stage::Failed, 2, "books:Broken: no balance"));
    let unfit = in_time(commands.start("books", "audit", &"many"));
    assert_eq!(unfit.result::<()>().wait().expect_err("it is no number").code(), ErrorCode::InvalidArgument);
    assert_eq!(in_time(unfit.info()).attempt, 1, "another attempt would not fit either");
    let late = in_time(commands.start("books", "slow", &())).result::<()>().wait();
    assert_eq!(late.expect_err("its time is over").code(), ErrorCode::TaskTimeout);
}

/// The first report of a command that runs.
fn in_time_report(run: &CommandRun) -> (f64, String) {
    let report = run.progress().next_blocking().expect("it reports").expect("the hub is there");
    (report.fraction, report.note)
}

#[test]
fn a_running_command_is_cancelled_and_a_service_that_stops_gives_its_command_to_another() {
    let place = Place::new();
    let (books, mut begun) = Books::new();
    let [first, second] = ["first", "second"].map(|name| join(&place.hub, name));
    let served = first.serve(books.service()).wait().expect("it is served");
    let commands = place.node.commands();
    let run = in_time(commands.start("books", "reindex", &(1,)));
    begun.blocking_recv().expect("it begins");
    assert!(in_time(run.cancel()));
    assert_eq!(run.result::<()>().wait().expect_err("it is cancelled").code(), ErrorCode::CallCancelled);
    let moved = in_time(commands.start("books", "reindex", &(2,)));
    assert_eq!(begun.blocking_recv(), Some((moved.id().to_owned(), 1)));
    served.stop(Duration::ZERO).wait().expect("it stops");
    second.serve(books.service()).wait().expect("it is served");
    assert_eq!(begun.blocking_recv(), Some((moved.id().to_owned(), 1)), "the attempt does not count");
    books.permits.add_permits(1);
    assert_eq!(in_time(moved.result::<(u32, String)>()), (2, "all".to_owned()));
    assert_eq!(in_time(moved.info()).worker.as_deref(), Some("second"));
}

#[test]
fn commands_that_cannot_be_served_are_named() {
    let place = Place::new();
    let command = |name: &str| Command::new(name, &[], |_, ()| async move { Ok(()) });
    let cases = [
        (Service::new("books").with_command(command("a.b")), "method: \"a.b\" is not allowed"),
        (Service::new("books").with_command(command("x").concurrency(0)), "concurrency"),
        (Service::new("books").with_command(command("x")).with_command(command("x")), "declared twice"),
    ];
    for (service, wanted) in cases {
        let error = place.node.serve(service).wait().expect_err("it is refused");
        assert!(error.to_string().contains(wanted), "{error}");
    }
}
