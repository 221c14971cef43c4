//! Connection of a bridge: a separate client without echo of its own messages, checked before use.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use async_nats::{Client, Event, ServerError, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::generated::limits;
use tokio::sync::watch;
use tokio::time::timeout;

use super::presence;
use super::{BridgeError, BridgeOptions, envelope};
use crate::connection::refused;
use crate::settings::Settings;

/// Messages that may wait in this process: other bridges send no more than their windows, and acks.
const SUBSCRIPTION_CAPACITY: usize = 65_536;

/// Status of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub is_up: bool,
    /// How often it was lost.
    pub losses: u64,
    /// The last refusal of the server.
    pub refused: Option<String>,
}

/// A connection, and the subscriptions of a bridge.
pub(super) struct Connected {
    pub client: Client,
    pub status: watch::Receiver<Status>,
    /// Messages to this node.
    pub mine: Subscriber,
    /// Presence messages of all nodes.
    pub presence: Subscriber,
    /// The losses after which the other nodes are known again.
    pub known: Arc<AtomicU64>,
    pub place: String,
    /// The longest frame that fits in a message.
    pub frame_max: usize,
}

/// Connects, subscribes, and looks whether the server lets this node do both.
pub(super) async fn connect(settings: &Settings, options: &BridgeOptions) -> Result<Connected, BridgeError> {
    let place = settings.shown();
    let (status_sender, status) = watch::channel(Status { is_up: true, ..Status::default() });
    let connecting =
        settings.options()?.no_echo().subscription_capacity(SUBSCRIPTION_CAPACITY).event_callback(move |event| {
            status_sender.send_modify(|status| match event {
                Event::Connected => status.is_up = true,
                Event::Disconnected => (status.is_up, status.losses) = (false, status.losses + 1),
                Event::ServerError(ServerError::Other(text)) => status.refused = Some(text),
                _ => {}
            });
            std::future::ready(())
        });
    let client = connecting.connect(settings.addresses()).await.map_err(|error| refused(settings, &error))?;
    let frame_max = frame_max(&client, &place, options)?;
    let ended = |error: &dyn std::fmt::Display| BridgeError::new(ErrorCode::LinkLost, format!("{place}: {error}"));
    let subject = format!("tw.node.{}", options.number);
    let mut mine = client.subscribe(format!("{subject}.>")).await.map_err(|error| ended(&error))?;
    let presence = client.subscribe(presence::SUBJECT).await.map_err(|error| ended(&error))?;
    // The probe has no receiver, as the server does not echo messages to their sender. The server
    // reports that, after it has processed all earlier messages.
    let (ask, reply) = ("tw.probe", format!("{subject}.probed"));
    client.publish_with_reply(ask, reply.clone(), Bytes::new()).await.map_err(|error| ended(&error))?;
    let answer = async {
        while let Some(message) = mine.next().await {
            if message.status == Some(StatusCode::NO_RESPONDERS) && *message.subject == *reply {
                return true;
            }
        }
        false
    };
    let answered = timeout(settings.connect_timeout, answer).await;
    let refused = status.borrow().refused.clone();
    match (answered, refused) {
        (_, Some(why)) => Err(denied(&place, &why)),
        (Ok(true), None) => {
            let known = Arc::new(AtomicU64::new(status.borrow().losses));
            Ok(Connected { client, status, mine, presence, known, place, frame_max })
        }
        _ => Err(ended(
            &"the server does not say that nobody answers: let this user publish and subscribe on tw.>, and install nats-server 2.2 or newer",
        )),
    }
}

fn denied(place: &str, why: &str) -> BridgeError {
    let fix = "let this user publish and subscribe on tw.>";
    BridgeError::new(
        ErrorCode::Unauthorized,
        format!("{place}: it refuses what nodes say to each other ({why}): {fix}"),
    )
}

/// The longest frame that fits in a message of the server.
fn frame_max(client: &Client, place: &str, options: &BridgeOptions) -> Result<usize, BridgeError> {
    let payload = client.server_info().max_payload;
    let least = options.chunk_bytes + limits::LINK_HEAD_BYTES.default + 64 + envelope::BYTES as u64;
    if (payload as u64) < least {
        let text = format!(
            "{place}: max_payload={payload} of the server is too small: give it {least} bytes or more, or lower link_chunk_bytes={}",
            options.chunk_bytes
        );
        return Err(BridgeError::new(ErrorCode::InvalidArgument, text));
    }
    Ok(payload - envelope::BYTES - 4)
}

/// Longest silence of a node until it counts as gone.
pub(super) fn silence(heartbeat_ms: u64) -> Duration {
    Duration::from_millis(2 * heartbeat_ms)
}
