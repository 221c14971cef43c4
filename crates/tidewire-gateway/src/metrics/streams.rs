//! Series of the streams of a hub and of their consumers.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Served;
use super::series::{Samples, Series};
use crate::shared::Shared;

/// Most streams whose consumers are asked for.
const STREAMS_MAX: usize = 200;
const STREAM: &[&str] = &["stream"];
const CONSUMER: &[&str] = &["stream", "consumer"];

const EVENTS: Series = Series("tidewire_stream_events", "gauge", "Events of a stream.", STREAM);
const BYTES: Series = Series("tidewire_stream_bytes", "gauge", "Bytes of its events on disk.", STREAM);
const STORED: Series = Series("tidewire_stream_stored_total", "counter", "Events that were ever stored.", STREAM);
const LAG: Series = Series("tidewire_consumer_lag", "gauge", "Events between a consumer and the newest one.", CONSUMER);
const IN_FLIGHT: Series = Series("tidewire_consumer_in_flight", "gauge", "Deliveries that are not settled.", CONSUMER);
const REDELIVERED: Series =
    Series("tidewire_consumer_redelivered_total", "counter", "Deliveries that were not the first.", CONSUMER);
const DEAD: Series = Series("tidewire_consumer_dead_letters", "gauge", "Dead letters of a consumer.", CONSUMER);
const OLDEST: Series =
    Series("tidewire_consumer_oldest_seconds", "gauge", "Age of the oldest event that is not acked.", CONSUMER);

/// Adds the series of all streams; none at a hub without a storage backend.
pub(super) async fn add(shared: &Shared, served: Served<'_>, samples: &mut Samples) -> Option<()> {
    if served?.is_none() {
        return Some(());
    }
    let streams = shared.node.streams().await.ok()?;
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
    for info in &streams {
        let labels = [info.settings.name.as_str()];
        samples.add(EVENTS, &labels, info.messages as f64);
        samples.add(BYTES, &labels, info.bytes as f64);
        samples.add(STORED, &labels, info.last as f64);
    }
    for info in streams.iter().filter(|info| info.consumers > 0).take(STREAMS_MAX) {
        let stream = shared.node.stream(&info.settings.name).await.ok()?;
        for consumer in stream.consumers().await.ok()? {
            let labels = [info.settings.name.as_str(), consumer.settings.name.as_str()];
            let age = consumer.oldest_time_us.map_or(0, |time_us| now_us.saturating_sub(time_us));
            for (series, value) in [
                (LAG, consumer.lag),
                (IN_FLIGHT, consumer.in_flight),
                (REDELIVERED, consumer.redelivered),
                (DEAD, consumer.dead),
            ] {
                samples.add(series, &labels, value as f64);
            }
            samples.add(OLDEST, &labels, age as f64 / 1e6);
        }
    }
    Some(())
}
