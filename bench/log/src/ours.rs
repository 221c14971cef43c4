//! A stream of a folder.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidewire_backend::home::{
    Ack, Answer, ConsumerSettings, Delivery, Fetch, Home as _, HomeResult, NewMessage, Start, StreamSettings,
    Streams as _,
};
use tidewire_embedded::{Embedded, Options, open};
use tidewire_proto::subject::{Pattern, Subject};

use crate::SIZE;
use crate::load::{Times, due};
use crate::logs::Log;

type Acks = Answer<Vec<HomeResult<Ack>>>;

pub struct Ours(Arc<Embedded>);

impl Ours {
    pub fn new(place: &Path) -> Self {
        let home = open(place, Options::default()).expect("a new folder");
        let subjects = vec![Pattern::new("orders.>").expect("a pattern")];
        home.create_stream(StreamSettings::new("orders", subjects)).wait().expect("a new stream");
        Self(home)
    }

    fn publish(&self, group: usize) -> Acks {
        let subject = Subject::new("orders.created").expect("a subject");
        let payload = Bytes::from_static(&[7; SIZE]);
        let messages = (0..group).map(|_| NewMessage::new(subject.clone(), payload.clone())).collect();
        self.0.publish("orders", messages, false)
    }

    /// Groups of which so many are under way.
    pub fn under_way(&self, count: usize, group: usize, most: usize) -> Duration {
        let begun = Instant::now();
        let mut waiting = VecDeque::new();
        for _ in 0..count / group {
            waiting.push_back(self.publish(group));
            if waiting.len() >= most {
                acked(waiting.pop_front().expect("there is one"));
            }
        }
        waiting.into_iter().for_each(acked);
        begun.elapsed()
    }

    /// Publishes what is due in each millisecond, while others wait for acks.
    pub fn load(&self, rate: usize, time: Duration) -> Times {
        let (send, sent) = mpsc::channel::<(Instant, Acks)>();
        thread::scope(|scope| {
            let acks = scope.spawn(move || {
                let mut times = Times::default();
                for (when, answer) in sent {
                    // The stream refuses appends above its capacity while others wait for the disk.
                    if !answer.wait().is_ok_and(|acks| acks.iter().all(Result::is_ok)) {
                        return Times::behind();
                    }
                    times.add(when);
                }
                times
            });
            due(rate, time, |when, group| send.send((when, self.publish(group))).is_ok());
            drop(send);
            acks.join().expect("acks come")
        })
    }

    /// Consumers of another stream, each with a delivery that is out and a fetch that waits.
    pub fn consumers(&mut self, count: usize) -> Vec<Answer<Vec<Delivery>>> {
        let home = &self.0;
        let subjects = vec![Pattern::new("idle.>").expect("a pattern")];
        home.create_stream(StreamSettings::new("idle", subjects)).wait().expect("a new stream");
        let names = || (0..count).map(|number| format!("c{number}"));
        let settings = |name: &str| ConsumerSettings { start: Start::All, ..ConsumerSettings::new(name) };
        let made: Vec<_> = names().map(|name| home.create_consumer("idle", settings(&name))).collect();
        made.into_iter().for_each(|made| drop(made.wait().expect("a new consumer")));
        let message = NewMessage::new(Subject::new("idle.x").expect("a subject"), vec![7; SIZE]);
        drop(home.publish("idle", vec![message], false).wait().expect("the stream is there"));
        let fetch = |wait_us| Fetch { max_messages: 1, max_bytes: 1, wait_us };
        names().for_each(|name| assert_eq!(home.fetch("idle", &name, fetch(0)).wait().expect("there is one").len(), 1));
        names().map(|name| home.fetch("idle", &name, fetch(3_600_000_000))).collect()
    }
}

impl Log for Ours {
    fn append(&mut self, group: usize) {
        acked(self.publish(group));
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.0.close().wait().expect("it closes");
    }
}

fn acked(answer: Acks) {
    assert!(answer.wait().expect("the stream is there").iter().all(Result::is_ok));
}
