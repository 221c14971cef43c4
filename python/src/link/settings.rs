//! The settings of links: numbers by the names of their limits, checked when the configuration was
//! read.

use std::collections::BTreeMap;

use tidewire_node::raw::{Batch, Greeting, HubOptions, TokenLimits};
use tidewire_proto::generated::limits::{self, Limit};

/// The table `links` of a configuration.
pub type Settings = BTreeMap<String, u64>;

/// The greeting of a node: its name and token, and the settings of its link.
pub fn greeting(name: &str, token: Option<String>, settings: &Settings) -> Greeting {
    Greeting {
        token,
        in_flight: size(settings, &limits::LINK_IN_FLIGHT),
        frame_bytes: size(settings, &limits::LINK_FRAME_BYTES),
        payload_bytes: size(settings, &limits::PAYLOAD_BYTES),
        queue_bytes: size(settings, &limits::LINK_QUEUE_BYTES),
        heartbeat_ms: number(settings, &limits::LINK_HEARTBEAT_MS),
        greeting_ms: number(settings, &limits::LINK_GREETING_MS),
        chunk_bytes: size(settings, &limits::LINK_CHUNK_BYTES),
        batch: batch(settings),
        compress_bytes: (
            size(settings, &limits::LINK_COMPRESS_BYTES),
            size(settings, &limits::LINK_COMPRESS_NEAR_BYTES),
        ),
        shared_bytes: size(settings, &limits::LINK_SHARED_BYTES),
        backoff_ms: (number(settings, &limits::LINK_BACKOFF_MS), number(settings, &limits::LINK_BACKOFF_MAX_MS)),
        ..Greeting::new(name)
    }
}

/// The options of a hub.
pub fn hub_options(name: &str, settings: &Settings) -> HubOptions {
    HubOptions {
        links: size(settings, &limits::HUB_LINKS),
        in_flight: size(settings, &limits::LINK_IN_FLIGHT),
        frame_bytes: size(settings, &limits::LINK_FRAME_BYTES),
        payload_bytes: size(settings, &limits::PAYLOAD_BYTES),
        queue_bytes: size(settings, &limits::LINK_QUEUE_BYTES),
        subscriptions: size(settings, &limits::LINK_SUBSCRIPTIONS),
        hub_queue_bytes: size(settings, &limits::HUB_QUEUE_BYTES),
        hub_heartbeat_ms: number(settings, &limits::HUB_HEARTBEAT_MS),
        said_bytes: size(settings, &limits::LINK_SAID_BYTES),
        name_ms: number(settings, &limits::HUB_NAME_MS),
        heartbeat_ms: number(settings, &limits::LINK_HEARTBEAT_MS),
        greeting_ms: number(settings, &limits::LINK_GREETING_MS),
        hello_bytes: size(settings, &limits::LINK_HELLO_BYTES),
        greetings: size(settings, &limits::LINK_GREETINGS),
        chunk_bytes: size(settings, &limits::LINK_CHUNK_BYTES),
        batch: batch(settings),
        ..HubOptions::new(name)
    }
}

/// The limits of one token. Omitted ones are those of the hub.
pub fn token_limits(settings: &Settings) -> TokenLimits {
    let of = |limit: &Limit| settings.get(limit.name).map(|&number| usize::try_from(number).unwrap_or(usize::MAX));
    TokenLimits {
        links: of(&limits::HUB_LINKS),
        subscriptions: of(&limits::LINK_SUBSCRIPTIONS),
        in_flight: of(&limits::LINK_IN_FLIGHT),
        queue_bytes: of(&limits::LINK_QUEUE_BYTES),
    }
}

fn batch(settings: &Settings) -> Batch {
    Batch { bytes: size(settings, &limits::LINK_BATCH_BYTES), frames: size(settings, &limits::LINK_BATCH_FRAMES) }
}

fn number(settings: &Settings, limit: &Limit) -> u64 {
    settings.get(limit.name).copied().unwrap_or(limit.default)
}

fn size(settings: &Settings, limit: &Limit) -> usize {
    usize::try_from(number(settings, limit)).unwrap_or(usize::MAX)
}
