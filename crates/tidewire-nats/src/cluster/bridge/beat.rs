//! Heartbeats: announcements of this node, and how the loss of another one is noticed.
//!
//! Nodes form a ring by their numbers. Each asks the next one at each beat, and tells all others of
//! its loss: an idle cluster sends a number of messages that grows with the nodes, not their pairs.

use std::time::Duration;

use tokio::time::Instant;

use super::{ANNOUNCE, Cluster, PROBE};
use crate::cluster::connection::silence;
use crate::cluster::envelope::What;
use crate::cluster::peer::Peer;
use crate::cluster::presence::PresenceKind;
use crate::cluster::rand_token;

impl Cluster {
    pub(super) async fn beat(&mut self) {
        let now = Instant::now();
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe().await;
        }
        let next = self.peers.range(self.me.number..).next().or(self.peers.iter().next()).map(|(number, _)| *number);
        let is_due = self.beat_at <= now && self.was_up;
        if let Some(number) = next.filter(|_| is_due || next != self.watched) {
            self.send_control(number, What::Ask).await;
        }
        self.watched = next;
        if self.beat_at > now {
            return;
        }
        self.beat_at = now + Duration::from_millis(self.me.heartbeat_ms / 2);
        if !self.was_up {
            return;
        }
        let rounds = 1 + self.peers.len() / ANNOUNCE;
        if self.beats == 0 {
            self.beats = rounds;
            self.announce(self.me.written(PresenceKind::Here)).await;
        }
        self.beats = self.beats.min(rounds) - 1;
        // The others learn of it before its time is over, and ask it, too.
        let is_late = |peer: &&Peer| now.duration_since(peer.last_seen) > silence(peer.about.heartbeat_ms) * 3 / 4;
        let is_late = |peer: &&Peer| peer.suspected_until.is_none() && is_late(peer);
        if let Some(peer) = next.and_then(|next| self.peers.get(&next)).filter(is_late) {
            let (number, message) = (peer.about.number, peer.about.written(PresenceKind::Gone));
            self.announce(message).await;
            self.suspect(number).await;
        }
        let silent = |peer: &Peer| match peer.suspected_until {
            Some(until) => until <= now,
            None => now.duration_since(peer.last_seen) > silence(peer.about.heartbeat_ms) * rounds as u32,
        };
        let lost: Vec<u32> = self.peers.iter().filter(|(_, peer)| silent(peer)).map(|(number, _)| *number).collect();
        for number in lost {
            self.forget(number, "nothing was heard of it for two heartbeats");
        }
        let counts = self.peers.iter_mut().filter_map(|(number, peer)| peer.owes_count().then_some(*number));
        for number in counts.collect::<Vec<_>>() {
            self.send_control(number, What::Ack).await;
        }
        let again = |peer: &Peer| !peer.session.is_open() || peer.refused_until.is_some_and(|until| until <= now);
        let again: Vec<u32> = self.peers.iter().filter(|(_, peer)| again(peer)).map(|(number, _)| *number).collect();
        for number in again {
            if let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.session.is_open()) {
                peer.reset(self.me.number, rand_token());
                peer.refused_until = None;
            }
            self.open(number).await;
        }
    }

    /// Asks those whether they are there who have to answer calls.
    async fn probe(&mut self) {
        self.probe_at = None;
        let owing: Vec<u32> =
            self.peers.iter().filter(|(_, peer)| peer.open_calls() > 0).map(|(number, _)| *number).collect();
        for number in owing {
            self.send_control(number, What::Ask).await;
            self.probe_at = Some(Instant::now() + PROBE);
        }
    }

    /// Asks a node that may be gone. It is, if the server says so or no answer comes in time.
    pub(super) async fn suspect(&mut self, number: u32) {
        let Some(peer) = self.peers.get_mut(&number).filter(|peer| peer.suspected_until.is_none()) else { return };
        let until = Instant::now() + silence(peer.about.heartbeat_ms) / 4;
        peer.suspected_until = Some(until);
        self.beat_at = self.beat_at.min(until);
        self.send_control(number, What::Ask).await;
    }
}
