//! Tasks that are polled by who wakes them.

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use tidewire_engine::raw::Mutex;

use super::InlineTask;
use crate::pending::{Signal, Wakers};

#[test]
fn a_task_that_many_threads_wake_is_polled_by_one_at_a_time_and_misses_no_wake() {
    const WAKES: usize = 1_000;
    let (wakes, polls, wakers) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(())), Arc::new(Mutex::new(None)));
    let (seen, ended) = (Arc::clone(&wakes), Arc::new(AtomicUsize::new(0)));
    let (alone, set, end) = (Arc::clone(&polls), Arc::clone(&wakers), Arc::clone(&ended));
    InlineTask::spawn(Box::pin(poll_fn(move |context| {
        let _alone = alone.try_lock().expect("no other thread polls it");
        *set.lock() = Some(context.waker().clone());
        if seen.load(Ordering::Acquire) < 4 * WAKES {
            return Poll::Pending;
        }
        end.fetch_add(1, Ordering::AcqRel);
        Poll::Ready(())
    })));
    let waker: Waker = wakers.lock().clone().expect("it was polled");
    let threads = (0..4).map(|_| {
        let (waker, wakes) = (waker.clone(), Arc::clone(&wakes));
        thread::spawn(move || {
            for _ in 0..WAKES {
                wakes.fetch_add(1, Ordering::AcqRel);
                waker.wake_by_ref();
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(ended.load(Ordering::Acquire), 1);
}

#[test]
fn a_wait_that_has_ended_leaves_no_waker_at_its_event() {
    let (event, task) = (Signal::default(), Arc::<Wakers>::default());
    let (waker, mut wait) = (Waker::from(Arc::clone(&task)), Box::pin(event.unless(pending::<()>())));
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop((waker, wait));
    assert_eq!(Arc::strong_count(&task), 1);
}
