//! The home of Tidewire on NATS.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tidewire_backend::home::{ConsumerSettings, Fetch, Home, NewMessage, Settle, Settlement, Start, StreamSettings};
use tidewire_proto::subject::{Pattern, Subject};

use crate::{BATCH, SIZE, WINDOW};

pub struct Ours(Arc<dyn Home>);

impl Ours {
    pub fn new(url: &str, streams: &[&str]) -> Self {
        let home = tidewire_nats::open(url).unwrap();
        for stream in streams {
            let subjects = vec![Pattern::new(&format!("{stream}.>")).unwrap()];
            home.create_stream(StreamSettings::new(stream, subjects)).wait().unwrap();
        }
        Self(home)
    }

    pub fn publish_in_calls(&self, stream: &str, count: usize) -> f64 {
        self.publish(stream, count, BATCH)
    }

    pub fn publish_one_by_one(&self, stream: &str, count: usize) -> f64 {
        self.publish(stream, count, 1)
    }

    /// Calls of `size` messages, as many under way as the window has room for.
    fn publish(&self, stream: &str, count: usize, size: usize) -> f64 {
        let subject = Subject::new(&format!("{stream}.created")).unwrap();
        let payload = Bytes::from(vec![7; SIZE]);
        let begun = Instant::now();
        let mut under_way = VecDeque::new();
        for _ in 0..count / size {
            if under_way.len() * size >= WINDOW {
                acked(under_way.pop_front());
            }
            let messages = (0..size).map(|_| NewMessage::new(subject.clone(), payload.clone())).collect();
            under_way.push_back(self.0.publish(stream, messages, false));
        }
        while let Some(answer) = under_way.pop_front() {
            acked(Some(answer));
        }
        count as f64 / begun.elapsed().as_secs_f64()
    }

    /// Fetches and settles in turn; the next fetch is under way while the last one is settled.
    pub fn consume(&self, stream: &str, count: usize) -> f64 {
        let settings = ConsumerSettings { start: Start::All, max_in_flight: 10_000, ..ConsumerSettings::new("reader") };
        self.0.create_consumer(stream, settings).wait().unwrap();
        let fetch = Fetch { max_messages: BATCH as u32, max_bytes: 1 << 24, wait_us: 5_000_000 };
        let begun = Instant::now();
        let (mut seen, mut settling) = (0, VecDeque::new());
        while seen < count {
            let deliveries = self.0.fetch(stream, "reader", fetch).wait().unwrap();
            assert!(!deliveries.is_empty(), "{seen} of {count} came");
            seen += deliveries.len();
            let acks = deliveries.iter().map(|one| Settle {
                sequence: one.event.sequence,
                ticket: one.ticket,
                how: Settlement::Ack,
            });
            settling.push_back(self.0.settle(stream, "reader", acks.collect()));
            if settling.len() > 2 {
                settled(settling.pop_front());
            }
        }
        while let Some(answer) = settling.pop_front() {
            settled(Some(answer));
        }
        count as f64 / begun.elapsed().as_secs_f64()
    }
}

type Answer<T> = tidewire_backend::home::Answer<Vec<tidewire_backend::home::HomeResult<T>>>;

fn acked(answer: Option<Answer<tidewire_backend::home::Ack>>) {
    settled(answer);
}

fn settled<T>(answer: Option<Answer<T>>) {
    let results = answer.map(|answer| answer.wait().unwrap()).unwrap_or_default();
    assert!(results.iter().all(Result::is_ok));
}
