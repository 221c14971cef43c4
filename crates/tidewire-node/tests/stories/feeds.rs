//! Streams as arguments: between nodes of Rust, and with Python in both directions.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use tidewire_node::{Context as Call, ErrorCode, Failure, Feed, Function, Items, Node, RemoteFunction, Service};

use crate::support::count::{AtEnd, Count};
use crate::support::python::Python;
use crate::support::{OnDrop, PATIENCE, Told, hub, in_time, join};

fn count(end: i64, at_end: AtEnd, told: &Told<&'static str>) -> Feed {
    let _ends = Some(OnDrop(told.0.clone(), "dropped"));
    Feed::new(Count { next: 0, end, at_end, written: Arc::default(), _ends })
}

async fn sum(mut numbers: Items<i64>) -> Result<i64, Failure> {
    let mut sum = 0;
    while let Some(number) = numbers.next().await {
        sum += number?;
    }
    Ok(sum)
}

async fn until_error(mut numbers: Items<i64>) -> Result<String, Failure> {
    let mut got = Vec::new();
    loop {
        match numbers.next().await {
            Some(Ok(number)) => got.push(number),
            Some(Err(error)) => {
                let remote = error.remote().cloned().unwrap_or_default();
                return Ok(format!("{got:?} {} {}", remote.type_name, remote.message));
            }
            None => return Ok("no error".to_owned()),
        }
    }
}

/// Gives twice what it is given.
struct Doubled(Items<i64>);

impl Stream for Doubled {
    type Item = Result<i64, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = Pin::new(&mut self.0).poll_next(context);
        next.map(|item| item.map(|number| Ok(2 * number?)))
    }
}

fn taker(told: &Told<&'static str>) -> Service {
    let (say, holds) = (told.0.clone(), told.0.clone());
    Service::new("taker")
        .method("held", &["numbers"], move |_, mut numbers: Items<i64>| {
            let ends = OnDrop(holds.clone(), "handler ended");
            async move {
                numbers.next().await.transpose()?;
                let _ = ends.0.send("reads");
                Ok(numbers.next().await.transpose()?)
            }
        })
        .method("sum", &["numbers"], |_: Call, numbers: Items<i64>| sum(numbers))
        .method("both", &["one", "numbers"], |_, (one, numbers): (Items<i64>, Items<i64>)| async move {
            Ok(vec![sum(one).await?, sum(numbers).await?])
        })
        .method("first", &["numbers", "count"], |_, (mut numbers, count): (Items<i64>, usize)| async move {
            let mut got = Vec::new();
            while got.len() < count {
                got.push(numbers.next().await.ok_or_else(|| Failure::new("test:Short", "too few"))??);
            }
            Ok(got)
        })
        .method("close", &["numbers"], move |_, mut numbers: Items<i64>| {
            let say = say.clone();
            async move {
                let first = numbers.next().await.transpose()?;
                drop(numbers);
                let _ = say.send("closed");
                std::future::pending::<()>().await;
                Ok(first)
            }
        })
        .method("ignore", &["numbers"], |_, _numbers: Items<i64>| async { Ok("ignored") })
        .method("until_error", &["numbers"], |_, numbers: Items<i64>| until_error(numbers))
        .method("call_each", &["functions"], |_, mut functions: Items<RemoteFunction>| async move {
            let mut got = Vec::new();
            while let Some(function) = functions.next().await {
                got.push(function?.call::<i64>(&10).await?);
            }
            Ok(got)
        })
        .stream("doubled", &["numbers"], |_, numbers: Items<i64>| Doubled(numbers))
}

/// A hub, a node that serves, and one that calls, behind what their streams tell.
fn three() -> (Told<&'static str>, Node, Node, Node) {
    let (told, hub) = (Told::new(), hub());
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(taker(&told)).wait().expect("it serves");
    (told, hub, server, caller)
}

#[test]
fn a_service_reads_what_its_caller_writes() {
    let (told, _hub, _server, caller) = three();
    let client = caller.client("taker");
    assert_eq!(client.call::<i64>("sum", &count(1_000, AtEnd::Stop, &told)).wait().ok(), Some(499_500));
    assert_eq!(client.call::<i64>("sum", &Feed::of(1..=100)).wait().ok(), Some(5_050));
    let both = client.call::<Vec<i64>>("both", &(Feed::of([1, 2]), Feed::of([3, 4]))).wait();
    assert_eq!(both.ok(), Some(vec![3, 7]));
    assert_eq!(client.call::<String>("ignore", &count(9, AtEnd::Wait, &told)).wait().ok().as_deref(), Some("ignored"));
    assert_eq!(told.next(), "dropped");
}

#[test]
fn the_writer_is_never_far_ahead_of_its_reader() {
    let (_told, _hub, _server, caller) = three();
    let written = Arc::<AtomicUsize>::default();
    let endless = Count { next: 0, end: i64::MAX, at_end: AtEnd::Stop, written: Arc::clone(&written), _ends: None };
    let first: Vec<i64> = caller.client("taker").call("first", &(Feed::new(endless), 5_000)).wait().expect("it reads");
    assert_eq!((first.len(), first.last()), (5_000, Some(&4_999)));
    let ahead = written.load(Ordering::SeqCst) - 5_000;
    assert!(ahead <= 64, "the writer was {ahead} items ahead");
}

// Promises: P13.41.
#[test]
fn a_stream_is_dropped_before_its_call_has_ended_however_it_ends() {
    let (told, _hub, server, caller) = three();
    let client = caller.client("taker");
    client.call::<Vec<i64>>("first", &(count(i64::MAX, AtEnd::Stop, &told), 3)).wait().expect("it reads three");
    assert_eq!(told.now(), Some("dropped"));
    client.call::<i64>("sum", &count(3, AtEnd::Stop, &told)).wait().expect("it reads all");
    assert_eq!(told.now(), Some("dropped"));
    let hasty = client.clone().timeout(Duration::from_millis(50));
    let late = hasty.call::<i64>("sum", &count(3, AtEnd::Wait, &told)).wait().expect_err("it waits for more");
    assert_eq!((late.code(), told.now()), (ErrorCode::AskTimeout, Some("dropped")));
    let nobody = caller.client("nobody").call::<i64>("sum", &count(3, AtEnd::Stop, &told)).wait().expect_err("nobody");
    assert_eq!((nobody.code(), told.now()), (ErrorCode::NoResponders, Some("dropped")));
    let wrong = client.call::<i64>("sum", &(count(3, AtEnd::Stop, &told), 2)).wait().expect_err("one too many");
    assert_eq!((wrong.code(), told.now()), (ErrorCode::InvalidArgument, Some("dropped")));
    drop(client.call::<i64>("sum", &count(3, AtEnd::Wait, &told)));
    // A thread may poll the stream in this moment, and drops it then.
    assert_eq!(told.next(), "dropped");
    let mut held = client.stream::<i64>("doubled", &count(1, AtEnd::Wait, &told));
    assert_eq!(held.next_blocking().and_then(Result::ok), Some(0));
    server.stop(Duration::ZERO).wait().expect("it stops");
    let lost = held.next_blocking().expect("an error").expect_err("its callee is gone");
    assert!([ErrorCode::NodeStopped, ErrorCode::LinkLost].contains(&lost.code()), "{lost}");
    assert_eq!(told.now(), Some("dropped"));
}

// Promises: P13.41.
#[test]
fn a_call_does_not_end_while_a_thread_still_drops_its_stream() {
    let (told, _hub, _server, caller) = three();
    let client = caller.client("taker");
    // The drop of the stream waits until the test has received its second report, and panics then.
    let (say, dropped) = sync_channel(0);
    let [begins, panics] = ["drop begins", "panics"].map(|text| OnDrop(told.0.clone(), text));
    let ends = (begins, OnDrop(say, "dropped"), panics);
    let slow = Feed::of((0_i64..).map(move |number| (number, &ends).0));
    let mut call = client.call::<Option<i64>>("held", &slow);
    assert_eq!(told.some(), ["drop begins", "handler ended", "reads"]);
    // A later reply comes after that of the first call.
    assert_eq!(client.call::<i64>("sum", &Feed::of([1])).wait().ok(), Some(1));
    assert!(Pin::new(&mut call).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert_eq!(dropped.recv().ok(), Some("dropped"));
    assert_eq!(call.wait().ok(), Some(Some(1)));
}

// Promises: P13.42.
#[test]
fn a_callee_that_has_read_enough_closes_the_stream_while_its_call_goes_on() {
    let (told, _hub, _server, caller) = three();
    let call = caller.client("taker").call::<Option<i64>>("close", &count(i64::MAX, AtEnd::Stop, &told));
    assert_eq!(told.some(), ["closed", "dropped"]);
    drop(call);
}

#[test]
fn an_error_of_the_stream_comes_after_its_items() {
    let (told, _hub, _server, caller) = three();
    let client = caller.client("taker");
    for (at_end, said) in [(AtEnd::Fail, "[0, 1] test:Broken it broke"), (AtEnd::Panic, "[0, 1] std:Panic it panicked")]
    {
        let got = client.call::<String>("until_error", &count(2, at_end, &told)).wait();
        assert_eq!(got.ok().as_deref(), Some(said));
        assert_eq!(told.now(), Some("dropped"));
    }
}

#[test]
fn a_stream_goes_in_and_another_one_comes_out() {
    let (told, _hub, _server, caller) = three();
    let mut doubled = caller.client("taker").stream::<i64>("doubled", &count(500, AtEnd::Stop, &told));
    for number in 0..500 {
        assert_eq!(doubled.next_blocking().and_then(Result::ok), Some(2 * number));
    }
    assert!(doubled.next_blocking().is_none());
    assert_eq!(told.now(), Some("dropped"));
}

#[test]
fn items_hold_functions_that_their_reader_calls() {
    let (_told, _hub, _server, caller) = three();
    let times = |by: i64| Function::new("times", &["number"], move |_, number: i64| async move { Ok(by * number) });
    let called = caller.client("taker").call::<Vec<i64>>("call_each", &Feed::of((0..100).map(times))).wait();
    assert_eq!(called.ok(), Some((0..100).map(|by| 10 * by).collect()));
    in_time(caller.until_remote(|counts| counts.given == 0));
}

// Promises: P13.65.
#[test]
fn a_handler_that_reads_its_caller_does_not_keep_its_node() {
    let (told, _hub, server, caller) = three();
    let call = caller.client("taker").call::<i64>("held", &count(1, AtEnd::Wait, &told));
    assert_eq!(told.next(), "reads");
    drop(server);
    assert_eq!(call.wait().expect_err("its callee is gone").code(), ErrorCode::LinkLost);
    assert_eq!(told.some(), ["dropped", "handler ended"]);
}

#[test]
fn a_value_that_is_no_stream_or_cannot_be_sent_is_named() {
    let (_told, _hub, _server, caller) = three();
    let client = caller.client("taker");
    let wrong = client.call::<i64>("sum", &7).wait().expect_err("a number");
    assert_eq!(wrong.to_string(), "taker.sum: numbers: invalid type: integer `7`, expected a stream of the caller");
    let feed = Feed::of([1]);
    assert_eq!(client.call::<i64>("sum", &feed).wait().ok(), Some(1));
    let again = client.call::<i64>("sum", &feed).wait().expect_err("it was read");
    assert!(again.to_string().contains("is read once"), "{again}");
    let published = caller.publish("numbers", &Feed::of([1])).expect_err("it is no data");
    assert!(published.to_string().contains("arguments and results of calls only"), "{published}");
    let all = client.call_all::<i64>("sum", &Feed::of([1])).wait().expect_err("it is for one");
    assert_eq!(all.code(), ErrorCode::InvalidArgument, "{all}");
}

// Promises: P13.18, P13.72.
#[test]
fn a_call_that_gives_a_stream_is_never_made_again() {
    let (told, _hub, server, caller) = three();
    let call = caller.client("taker").idempotent().call::<Option<i64>>("close", &count(9, AtEnd::Wait, &told));
    assert_eq!(told.some(), ["closed", "dropped"]);
    drop(server);
    assert_eq!(call.wait().expect_err("its callee is gone").code(), ErrorCode::LinkLost);
}

#[test]
fn rust_gives_streams_to_python() {
    let hub = hub();
    let Some(python) = Python::start("giving.py", "serve", &hub) else { return };
    python.expect("ready");
    let (caller, told) = (join(&hub, "rust"), Told::new());
    let taker = caller.client("taker");
    assert_eq!(taker.call::<i64>("sum", &count(1_000, AtEnd::Stop, &told)).wait().ok(), Some(499_500));
    assert_eq!(told.now(), Some("dropped"));
    assert_eq!(taker.call::<i64>("sum_plain", &Feed::of(0..100)).wait().ok(), Some(4_950));
    let zipped: Vec<(i64, String)> =
        taker.call("zip", &(Feed::of([1, 2]), Feed::of(["a", "b"]))).wait().expect("both are read");
    assert_eq!(zipped, [(1, "a".to_owned()), (2, "b".to_owned())]);
    let endless = count(i64::MAX, AtEnd::Stop, &told);
    assert_eq!(taker.call::<Vec<i64>>("first", &(endless, 3)).wait().ok(), Some(vec![0, 1, 2]));
    assert_eq!(told.now(), Some("dropped"));
    let broken = taker.call::<String>("until_error", &count(2, AtEnd::Fail, &told)).wait();
    assert_eq!(broken.ok().as_deref(), Some("[0, 1] test:Broken it broke"));
    let mut doubled = taker.stream::<i64>("doubled", &Feed::of(0..200));
    for number in 0..200 {
        assert_eq!(doubled.next_blocking().and_then(Result::ok), Some(2 * number));
    }
    assert_eq!(told.next(), "dropped");
    let closing = taker.call::<i64>("close", &count(i64::MAX, AtEnd::Stop, &told));
    python.expect("closed");
    assert_eq!(told.next(), "dropped");
    drop(closing);
}

#[test]
fn python_gives_streams_to_rust() {
    let (hub, told) = (hub(), Told::new());
    let server = join(&hub, "server");
    server.serve(taker(&told)).wait().expect("it serves");
    let Some(python) = Python::start("giving.py", "call", &hub) else { return };
    // Each generator is closed as its call ends.
    for _ in 0..6 {
        python.expect("generator closed");
    }
    python.expect("done");
    server.stop(PATIENCE).wait().expect("it stops");
}
