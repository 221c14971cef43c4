//! Streams between nodes of Rust.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tidewire_node::values::Bytes;
use tidewire_node::{ErrorCode, Failure, Items, Service};

use crate::support::count::{AtEnd, Count};
use crate::support::{OnDrop, PATIENCE, Told, hub, join};

fn counting(told: &Told<&'static str>, written: &Arc<AtomicUsize>) -> Service {
    let (say, called, written) = (told.0.clone(), told.0.clone(), Arc::clone(written));
    Service::new("counting")
        .stream("count", &["end", "then"], move |_, (end, then): (i64, String)| {
            let at_end = match then.as_str() {
                "fail" => AtEnd::Fail,
                "panic" => AtEnd::Panic,
                "wait" => AtEnd::Wait,
                _ => AtEnd::Stop,
            };
            let _ends = Some(OnDrop(say.clone(), "closed"));
            Count { next: 0, end, at_end, written: Arc::clone(&written), _ends }
        })
        .method("one", &[], move |_, ()| {
            let _ = called.send("called");
            async { Ok(1) }
        })
}

fn all(mut items: Items<i64>) -> Vec<Result<i64, ErrorCode>> {
    std::iter::from_fn(|| items.next_blocking()).map(|item| item.map_err(|error| error.code())).collect()
}

// Promises: P13.68.
#[test]
fn items_come_in_order_and_the_writer_is_never_far_ahead() {
    let (hub, told, written) = (hub(), Told::new(), Arc::new(AtomicUsize::new(0)));
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(counting(&told, &written)).wait().expect("it serves");
    let mut items = caller.client("counting").stream::<i64>("count", &(5_000, "stop"));
    for number in 0..5_000 {
        assert_eq!(items.next_blocking().and_then(Result::ok), Some(number));
        let ahead = written.load(Ordering::SeqCst) - (number as usize + 1);
        assert!(ahead <= 64, "the writer is {ahead} items ahead");
    }
    assert!(items.next_blocking().is_none() && items.next_blocking().is_none());
    assert_eq!(told.next(), "closed");
}

/// Long items, and then an error.
struct Long {
    left: usize,
    bytes: usize,
}

impl Stream for Long {
    type Item = Result<Bytes, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(left) = self.left.checked_sub(1) else {
            return Poll::Ready(Some(Err(Failure::new("test:Broken", "it broke"))));
        };
        self.left = left;
        Poll::Ready(Some(Ok(Bytes::from(vec![left as u8; self.bytes]))))
    }
}

#[test]
fn long_items_come_in_order_to_a_slow_reader_and_an_error_after_them() {
    let hub = hub();
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    let service = Service::new("long")
        .stream("items", &["count", "bytes"], |_, (left, bytes): (usize, usize)| Long { left, bytes });
    server.serve(service).wait().expect("it serves");
    // The second stream exceeds the queue of a link, and the credit of the reader does not hold it
    // back.
    for (count, bytes) in [(20, 70_000), (40, 2 << 20)] {
        let mut items = caller.client("long").stream::<Bytes>("items", &(count, bytes));
        for left in (0..count).rev() {
            let item = items.next_blocking().expect("an item").expect("no error");
            assert!(item.len() == bytes && item[0] == left as u8 && item[bytes - 1] == left as u8);
        }
        let error = items.next_blocking().expect("an error").expect_err("no item");
        assert_eq!(error.code(), ErrorCode::RemoteError);
        assert!(items.next_blocking().is_none());
    }
}

#[test]
fn an_error_comes_after_the_items_before_it_and_is_the_last() {
    let (hub, told) = (hub(), Told::new());
    let server = join(&hub, "server");
    server.serve(counting(&told, &Arc::default())).wait().expect("it serves");
    let client = hub.client("counting");
    for then in ["fail", "panic"] {
        let items = all(client.stream("count", &(3, then)));
        assert_eq!(items, [Ok(0), Ok(1), Ok(2), Err(ErrorCode::RemoteError)], "{then}");
    }
}

#[test]
fn a_writer_that_dies_is_told_after_the_items_that_came() {
    let (hub, told) = (hub(), Told::new());
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(counting(&told, &Arc::default())).wait().expect("it serves");
    let mut items = caller.client("counting").stream::<i64>("count", &(2, "wait"));
    assert_eq!(items.next_blocking().and_then(Result::ok), Some(0));
    assert_eq!(items.next_blocking().and_then(Result::ok), Some(1));
    drop(server);
    assert_eq!(all(items), [Err(ErrorCode::LinkLost)]);
}

#[test]
fn a_service_that_stops_cuts_its_streams() {
    let (hub, told) = (hub(), Told::new());
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    let served = server.serve(counting(&told, &Arc::default())).wait().expect("it serves");
    let mut items = caller.client("counting").stream::<i64>("count", &(1, "wait"));
    assert_eq!(items.next_blocking().and_then(Result::ok), Some(0));
    served.stop(PATIENCE).wait().expect("it stops");
    assert_eq!(all(items), [Err(ErrorCode::NodeStopped)]);
}

#[test]
fn a_stream_is_no_call_and_a_call_is_no_stream() {
    let (hub, told) = (hub(), Told::new());
    hub.serve(counting(&told, &Arc::default())).wait().expect("it serves");
    let client = hub.client("counting");
    let wrong = client.call::<i64>("count", &(1, "stop")).wait().expect_err("it is a stream");
    assert!(wrong.to_string().contains("read it as a stream"), "{wrong}");
    let wrong = client.stream::<i64>("one", &()).next_blocking().expect("an error").expect_err("it is no stream");
    assert!(wrong.to_string().contains("call it, rather than read it"), "{wrong}");
    assert!(told.is_quiet(), "a handler has begun");
    let wrong =
        client.stream::<i64>("count", &("x", "stop")).next_blocking().expect("an error").expect_err("no number");
    assert_eq!(wrong.to_string(), "counting.count: end: invalid type: string \"x\", expected i64");
}

#[test]
fn many_streams_run_beside_each_other() {
    let (hub, told) = (hub(), Told::new());
    let (server, caller) = (join(&hub, "server"), join(&hub, "caller"));
    server.serve(counting(&told, &Arc::default())).wait().expect("it serves");
    let client = caller.client("counting");
    let mut streams: Vec<_> = (0..500).map(|_| client.stream::<i64>("count", &(100, "stop"))).collect();
    for number in 0..100 {
        for items in &mut streams {
            assert_eq!(items.next_blocking().and_then(Result::ok), Some(number));
        }
    }
    assert!(streams.iter_mut().all(|items| items.next_blocking().is_none()));
}
