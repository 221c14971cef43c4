//! Deadlines of asks: each ends its own ask, none early and none for ever, however many there are.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use tidewire_engine::*;

use crate::support::{PATIENCE, engine, wait};

type Asks = Vec<(Duration, Instant, Option<Pending<()>>)>;

/// Awaits all asks at once; answers for each how it ended and how long that took.
async fn all(mut asks: Asks) -> Vec<(Duration, Duration, AskError)> {
    let mut ended = Vec::new();
    poll_fn(move |cx| {
        for (after, begun, ask) in &mut asks {
            if let Some(pending) = ask
                && let Poll::Ready(result) = Pin::new(pending).poll(cx)
            {
                *ask = None;
                ended.push((*after, begun.elapsed(), result.expect_err("nobody replies")));
            }
        }
        if asks.iter().all(|(.., ask)| ask.is_none()) { Poll::Ready(std::mem::take(&mut ended)) } else { Poll::Pending }
    })
    .await
}

/// Keeps the places for the replies, so that nothing but the deadline ends an ask.
fn silent(engine: &Engine) -> ActorRef<Reply<()>> {
    let mut kept = Vec::new();
    let keeps = move |reply: Reply<()>, _: &mut Context<'_, _>| {
        kept.push(reply);
        Ok(())
    };
    engine.spawn_fn_with(SpawnOptions::new().mailbox(Mailbox::new(20_000)), keeps).unwrap()
}

// Promises: P4.10.
#[test]
fn ten_thousand_asks_that_nobody_answers_end_at_their_deadlines() {
    const ASKS: u64 = 10_000;
    let engine = engine(2);
    let asker = silent(&engine);
    let (tx, rx) = channel();
    engine
        .spawn_task(SpawnOptions::new(), move |_: Inbox<()>| {
            let (tx, asker) = (tx.clone(), asker.clone());
            async move {
                let ask = |n| {
                    let after = Duration::from_millis(n * 7 % 60);
                    (after, Instant::now(), Some(asker.ask(|reply| reply, after)))
                };
                Ok(tx.send(all((0..ASKS).map(ask).collect()).await)?)
            }
        })
        .unwrap();
    let ended = wait(&rx);
    assert_eq!(ended.len() as u64, ASKS);
    for (after, took, error) in ended {
        assert!(matches!(error, AskError::Timeout { .. }), "{error:?}");
        assert!(took >= after, "an ask with {after:?} ended after {took:?}");
    }
    assert_eq!(engine.statistics().timers, 0, "a deadline that has passed leaves nothing behind");
    engine.shutdown(PATIENCE);
}

#[test]
fn a_short_deadline_after_a_long_one_wakes_the_timers_early() {
    let engine = engine(2);
    let asker = silent(&engine);
    let (tx, rx) = channel();
    engine
        .spawn_task(SpawnOptions::new(), move |_: Inbox<()>| {
            let (tx, asker) = (tx.clone(), asker.clone());
            async move {
                let long = asker.ask(|reply| reply, Duration::from_secs(3600));
                let mut asks = [(Duration::ZERO, Instant::now(), Some(long))];
                // The long one is under way and stays so, while short ones come and go.
                poll_fn(|cx| Poll::Ready(Pin::new(asks[0].2.as_mut().unwrap()).poll(cx).is_pending())).await;
                for _ in 0..20 {
                    let error = asker.ask(|reply| reply, Duration::from_millis(1)).await.unwrap_err();
                    tx.send(error)?;
                }
                Ok(())
            }
        })
        .unwrap();
    for _ in 0..20 {
        let error = wait(&rx);
        assert!(matches!(error, AskError::Timeout { .. }), "{error:?}");
    }
    engine.shutdown(PATIENCE);
}

/// A message whose copies wait for somebody else.
struct Copied {
    begun: Sender<()>,
    leave: Arc<Mutex<Receiver<()>>>,
}

impl Clone for Copied {
    fn clone(&self) -> Self {
        self.begun.send(()).unwrap();
        self.leave.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        Self { begun: self.begun.clone(), leave: Arc::clone(&self.leave) }
    }
}

#[test]
fn nobody_waits_for_the_copy_of_a_message_that_a_timer_makes() {
    let engine = engine(1);
    let actor = engine.spawn_fn(|_: Copied, _| Ok(())).unwrap();
    let ((begun, copying), (leave, left)) = (channel(), channel());
    let timer = engine.every(Duration::from_millis(1), &actor, Copied { begun, leave: Arc::new(Mutex::new(left)) });
    wait(&copying);
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send((timer.outcome(), timer.cancel(), timer.outcome())).unwrap());
    assert_eq!(wait(&told), (None, false, Some(TimerOutcome::Cancelled)));
    leave.send(()).unwrap();
}

#[test]
fn a_watch_after_the_end_of_its_engine_fires_at_its_time() {
    struct FireTime(Sender<Instant>);
    impl raw::Fire for FireTime {
        fn fire(self: Arc<Self>) {
            self.0.send(Instant::now()).unwrap();
        }
    }
    let engine = engine(1);
    engine.shutdown(PATIENCE);
    let ((sender, fired), at) = (channel(), Instant::now() + Duration::from_millis(20));
    let _watch = engine.handle().watch(at, Arc::new(FireTime(sender)));
    assert!(fired.recv_timeout(PATIENCE).unwrap() >= at);
}
