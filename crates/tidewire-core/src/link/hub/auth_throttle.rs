//! Throttle of join attempts: a place with many refused tokens waits for each further answer, and
//! no other place waits.

use std::collections::BTreeMap;

use tidewire_proto::generated::errors::ErrorCode;

use super::{Hub, LinkId};

/// Tokens of one place that are refused at once, in each second.
const AT_ONCE: u32 = 10;
/// How long the answers to further ones take.
const WAIT_US: u64 = 1_000_000;
/// Places that are remembered.
const PLACES: usize = 1_000;

/// The reason of a refused join.
pub(super) struct Refused {
    code: ErrorCode,
    text: String,
}

/// Tokens that were refused lately, by the places where they came from.
#[derive(Default)]
pub(super) struct AuthThrottle {
    refused: BTreeMap<u128, (u64, u32)>,
}

impl AuthThrottle {
    /// Counts a refused token. Returns the delay of the refusal.
    fn wait_us(&mut self, place: u128, now_us: u64) -> u64 {
        let second = now_us / 1_000_000;
        if self.refused.len() >= PLACES && !self.refused.contains_key(&place) {
            self.refused.retain(|_, (last, _)| *last + 1 >= second);
            if self.refused.len() >= PLACES {
                return WAIT_US;
            }
        }
        let (last, count) = self.refused.entry(place).or_insert((second, 0));
        *count = count.checked_shr((second - *last) as u32).unwrap_or(0).saturating_add(1);
        *last = second;
        if *count > AT_ONCE { WAIT_US } else { 0 }
    }
}

impl Hub {
    /// Refuses an unknown token. The node gets the refusal now or, after many attempts, later.
    pub(super) fn refuse_token(&mut self, at: LinkId, text: String) {
        let now_us = self.now_us;
        let Some(place) = self.link(at).and_then(|link| link.place) else {
            return self.close(at, ErrorCode::Unauthorized, &text);
        };
        let wait_us = self.strangers.wait_us(place, now_us);
        if wait_us == 0 {
            return self.close(at, ErrorCode::Unauthorized, &text);
        }
        if let Some(link) = self.link(at) {
            link.refused = Some(Refused { code: ErrorCode::Unauthorized, text });
            link.greeting_until_us = Some(now_us + wait_us);
        }
        self.look_at(at);
        self.retimed = true;
    }

    /// The time of a greeting is up.
    pub(super) fn greeting_is_over(&mut self, at: LinkId) {
        let refused = self.link(at).and_then(|link| link.refused.take());
        let (code, text) = refused.map_or_else(
            || {
                let text = format!("link_greeting_ms={}: no HELLO came in time", self.options.greeting_ms);
                (ErrorCode::LimitExceeded, text)
            },
            |refused| (refused.code, refused.text),
        );
        self.close(at, code, &text);
    }
}
