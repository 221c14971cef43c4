use tidewire_proto::wire::{Flags, Kind, PublishHead};

use super::Hub;
use super::calls::put_service;
use super::routes::Subscriber;

impl Hub {
    /// Tells those who want to know that a subscription which said something of itself has come or gone.
    pub(super) fn announce(&mut self, subject: &str, node: &str, subscriber: &Subscriber) {
        let (mut told, mut head) = (Vec::new(), Vec::new());
        put_service(&mut told, node, subscriber);
        if (PublishHead { subject, ..PublishHead::default() }).put(&mut head).is_err() {
            return;
        }
        let payload = as_value(&told);
        for (to, subscription) in self.receivers(subject, None) {
            // A queue group has no part in this: each node keeps a list of its own.
            if subscription == 0 {
                self.put(to, Kind::Publish, Flags::NORMAL, 0, &head, &payload);
            }
        }
    }
}

/// Bytes as a value that the ends can read: MessagePack `bin 32`.
pub(super) fn as_value(bytes: &[u8]) -> Vec<u8> {
    let mut value = vec![0xc6];
    value.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    value.extend_from_slice(bytes);
    value
}
