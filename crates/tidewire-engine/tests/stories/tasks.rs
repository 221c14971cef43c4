//! Actors that are futures, and what programs around actors are written with.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::mpsc::channel;
use std::time::Duration;

use futures_core::Stream;
use tidewire_engine::*;

use crate::support::drain;

/// A message that may go to another thread, and may not be shared between threads.
struct Alone(Cell<u32>);

#[test]
fn a_refused_message_that_can_not_be_shared_becomes_a_fault() {
    fn tell(actor: &ActorRef<Alone>) -> Result<(), Fault> {
        actor.tell(Alone(Cell::new(7)))?;
        Ok(())
    }
    let engine = Engine::new().unwrap();
    let actor = engine.spawn_fn(|_: Alone, _| Ok(())).unwrap();
    tell(&actor).unwrap();
    actor.stop(drain()).wait().unwrap();
    assert!(tell(&actor).unwrap_err().to_string().contains("has stopped"));
    assert_eq!(actor.tell(Alone(Cell::new(8))).unwrap_err().into_message().0.get(), 8);
}

#[test]
fn a_future_that_is_made_once_has_what_it_was_given() {
    let engine = Engine::new().unwrap();
    let (told, heard) = channel();
    let given = Box::new(10);
    let options = || SpawnOptions::new().mailbox(Mailbox::new(8));
    let adder = engine
        .spawn_task_once(options(), move |mut inbox: Inbox<u64>| async move {
            let mut total = *given;
            while let Some(n) = inbox.recv().await {
                total += n;
            }
            Ok(told.send(total)?)
        })
        .unwrap();
    adder.tell(2).unwrap();
    adder.tell(3).unwrap();
    assert_eq!(adder.stop(drain()).wait().unwrap().ledger.handled, 2);
    assert_eq!(heard.recv().unwrap(), 15);

    let restart = options().supervision(Supervision::on_failure(OnFailure::Restart));
    let refused = engine.spawn_task_once(restart, |_: Inbox<u64>| async { Ok(()) });
    assert!(matches!(refused, Err(SpawnError::NeedsFactory)), "{refused:?}");
}

#[test]
fn an_inbox_is_a_stream_that_ends_with_its_actor() {
    let engine = Engine::new().unwrap();
    let (told, heard) = channel();
    let actor = engine
        .spawn_task_once(SpawnOptions::new(), move |mut inbox: Inbox<u64>| async move {
            let mut all = Vec::new();
            while let Some(n) = poll_fn(|cx| Pin::new(&mut inbox).poll_next(cx)).await {
                all.push(n);
            }
            Ok(told.send(all)?)
        })
        .unwrap();
    (0..100).for_each(|n| {
        actor.send_blocking(n).unwrap();
    });
    assert_eq!(actor.stop(drain()).wait().unwrap().ledger.handled, 100);
    assert_eq!(heard.recv().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_reply_without_an_actor_ends_as_one_with_an_actor() {
    let (reply, asked) = Reply::channel();
    std::thread::spawn(move || reply.send(7));
    assert_eq!(asked.wait().unwrap(), 7);

    let (reply, asked) = Reply::<u32>::channel();
    drop(reply);
    assert!(matches!(asked.wait(), Err(AskError::NoReply { .. })));

    let (reply, asked) = Reply::<u32>::channel();
    drop(asked);
    assert!(reply.is_cancelled() && !reply.send(1));
}

#[test]
fn a_timer_makes_each_of_its_messages() {
    let engine = Engine::new().unwrap();
    let (told, heard) = channel();
    let actor = engine.spawn_fn(move |beat: Alone, _| Ok(told.send(beat.0.get())?)).unwrap();
    let mut beats = 0;
    let timer = engine.every_with(Duration::from_millis(1), &actor, move || {
        beats += 1;
        Alone(Cell::new(beats))
    });
    assert_eq!(heard.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
    timer.cancel();
    assert_eq!(timer.outcome(), Some(TimerOutcome::Cancelled));
}
