//! async-nats by itself, as its documentation shows it.

use std::collections::VecDeque;
use std::future::IntoFuture;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::{AckKind, Context, stream};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::runtime::{Builder, Runtime};

use crate::{BATCH, SIZE, WINDOW};

static VERSION: OnceLock<String> = OnceLock::new();

pub struct Bare {
    runtime: Runtime,
    context: Context,
}

/// The version of the server that was connected to last.
pub fn server_version() -> &'static str {
    VERSION.get().map_or("unknown", String::as_str)
}

impl Bare {
    pub fn new(url: &str, stream: &str) -> Self {
        // As many threads as the home of Tidewire has: one, beside the one that calls.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let context = runtime.block_on(async {
            let client = async_nats::connect(url).await.unwrap();
            VERSION.get_or_init(|| client.server_info().version);
            let context = ContextBuilder::new().max_ack_inflight(WINDOW).build(client);
            let config =
                stream::Config { name: stream.to_owned(), subjects: vec![format!("{stream}.>")], ..Default::default() };
            context.create_stream(config).await.unwrap();
            context
        });
        Self { runtime, context }
    }

    /// Publishes on a task of the runtime, and waits for every ack.
    pub fn publish(&self, stream: &str, count: usize) -> f64 {
        let (context, subject) = (self.context.clone(), format!("{stream}.created"));
        let task = self.runtime.spawn(async move {
            let payload = Bytes::from(vec![7; SIZE]);
            let begun = Instant::now();
            let mut under_way = VecDeque::with_capacity(WINDOW);
            for _ in 0..count {
                if under_way.len() >= WINDOW - 1 {
                    let ack: async_nats::jetstream::context::PublishAckFuture = under_way.pop_front().unwrap();
                    ack.into_future().await.unwrap();
                }
                under_way.push_back(context.publish(subject.clone(), payload.clone()).await.unwrap());
            }
            for ack in under_way {
                ack.into_future().await.unwrap();
            }
            count as f64 / begun.elapsed().as_secs_f64()
        });
        self.runtime.block_on(task).unwrap()
    }

    /// Fetches and acks, with or without the server's word for it.
    pub fn consume(&self, stream: &str, count: usize, confirmed: bool) -> f64 {
        let (context, stream) = (self.context.clone(), stream.to_owned());
        let task = self.runtime.spawn(async move {
            let config = pull::Config {
                durable_name: Some(format!("reader-{confirmed}")),
                max_ack_pending: 10_000,
                ..Default::default()
            };
            let consumer = context.get_stream(stream).await.unwrap().create_consumer(config).await.unwrap();
            let begun = Instant::now();
            let mut seen = 0;
            while seen < count {
                let batch =
                    consumer.fetch().max_messages(BATCH).expires(Duration::from_secs(5)).messages().await.unwrap();
                let messages: Vec<_> = batch.map(Result::unwrap).collect().await;
                seen += messages.len();
                if confirmed {
                    let acks = messages.iter().map(|message| message.double_ack_with(AckKind::Ack));
                    join_all(acks).await.into_iter().for_each(Result::unwrap);
                } else {
                    for message in &messages {
                        message.ack().await.unwrap();
                    }
                }
            }
            count as f64 / begun.elapsed().as_secs_f64()
        });
        self.runtime.block_on(task).unwrap()
    }
}
