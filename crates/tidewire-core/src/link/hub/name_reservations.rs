//! Reservation of node names: a name belongs to the token of its node for some time after a lost
//! link. A node that knows the secret of that link comes first.

use std::collections::{BTreeMap, VecDeque};

use tidewire_proto::generated::errors::ErrorCode;

use super::super::access::same;
use super::{Hub, LinkId};

/// Names that are reserved for the nodes of one token.
const NAMES: usize = 1_000;

/// Names whose links were lost.
#[derive(Default)]
pub(super) struct NameReservations {
    names: BTreeMap<String, NameOwner>,
    /// For each token the names in the order in which they were lost, with when they are free.
    order: BTreeMap<Option<usize>, VecDeque<(u64, String)>>,
}

struct NameOwner {
    grant: Option<usize>,
    resume: String,
    until_us: u64,
}

impl NameReservations {
    fn keep(&mut self, name: String, owner: NameOwner, now_us: u64) {
        let order = self.order.entry(owner.grant).or_default();
        order.push_back((owner.until_us, name.clone()));
        self.names.insert(name, owner);
        while order.len() > NAMES || order.front().is_some_and(|(until_us, _)| *until_us <= now_us) {
            let Some((until_us, name)) = order.pop_front() else { break };
            // The name may have been reserved again since then.
            if self.names.get(&name).is_some_and(|owner| owner.until_us == until_us) {
                self.names.remove(&name);
            }
        }
    }
}

impl Hub {
    /// Gives a node its name, and closes the link whose place it takes.
    pub(super) fn take_name(
        &mut self,
        at: LinkId,
        name: &str,
        grant: Option<usize>,
        resume: Option<&str>,
    ) -> Result<(), String> {
        let knows = |secret: &str| resume.is_some_and(|resume| same(resume.as_bytes(), secret.as_bytes()));
        let reservation = self.reservations.names.get(name).filter(|owner| owner.until_us > self.now_us);
        // A node that has taken the name meanwhile gives it back to the node with the secret.
        let returns = reservation.is_some_and(|owner| knows(&owner.resume));
        let is_anothers = reservation.is_some_and(|owner| owner.grant != grant);
        let Some(&other) = self.names.get(name) else {
            if is_anothers && !returns {
                let ms = self.options.name_ms;
                return Err(format!(
                    "name: {name:?} is that of a node of another token, whose link was lost: choose another name, or join hub_name_ms={ms} after that"
                ));
            }
            if returns {
                self.reservations.names.remove(name);
            } else {
                self.keep_secret(at, resume);
            }
            return Ok(());
        };
        let Some(holder) = self.link(other) else { return Ok(()) };
        // The old node only has to close its link, and may have done so. The end of the old link
        // and the first frame of the new one come over different sockets.
        let has_left = holder.has_left() && holder.grant == grant;
        // A node whose join was cut off before it had its WELCOME repeats its HELLO.
        let resumes =
            [&holder.resume, &holder.hello_secret].into_iter().any(|secret| !secret.is_empty() && knows(secret));
        if has_left && !returns {
            self.keep_secret(at, resume);
            self.end_link(other, "it has said goodbye, and a node of its name joins".to_owned());
        } else if !resumes && !returns {
            return Err(format!("name: a node called {name:?} is joined: choose another name, or resume its link"));
        } else if other != at {
            self.close(other, ErrorCode::LinkLost, "another link of this node has taken the place of this one");
        }
        // A node whose link was replaced has not lost its name.
        self.reservations.names.remove(name);
        Ok(())
    }

    /// Keeps the secret of a HELLO that resumes no link: the node repeats it if its join is cut
    /// off. A secret that resumed a link is used up.
    fn keep_secret(&mut self, at: LinkId, secret: Option<&str>) {
        if let Some(link) = self.link(at) {
            link.hello_secret = secret.unwrap_or_default().to_owned();
        }
    }

    /// The link of a node was lost.
    pub(super) fn keep_name(&mut self, at: LinkId) {
        let (now_us, ms) = (self.now_us, self.options.name_ms);
        let Some(link) = self.link(at).filter(|link| !link.here && !link.leaves) else { return };
        let until_us = now_us.saturating_add(ms.saturating_mul(1_000));
        let (name, owner) = (link.name.clone(), NameOwner { grant: link.grant, resume: link.resume.clone(), until_us });
        self.reservations.keep(name, owner, now_us);
    }
}
