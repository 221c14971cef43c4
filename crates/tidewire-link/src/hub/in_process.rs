//! Links inside of one process: frames go from hand to hand.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use tidewire_core::link::access::Grant;
use tidewire_core::link::hub::LinkId;
use tidewire_core::link::outbox::{FrameSink, WriteBatch};

use super::{HubHandle, Peer, Shared, secret};
use crate::clock::now_us;
use crate::runtime::Runtime;
use crate::writer::SharedWriter;

/// Receiver of the frames of a link inside this process.
pub trait LocalFrameSink: Send + Sync {
    /// Takes whole frames.
    fn feed(&self, frames: &[u8]);
    /// True if the receiver takes no frames at present.
    fn is_paused(&self) -> bool;
    /// Does what time asks for.
    fn tick(&self) {}
    /// When time asks for something next.
    fn due_us(&self) -> u64 {
        u64::MAX
    }
    /// The hub closes the link; the node may join it again if the hub itself goes on.
    fn ended(&self, reason: &str, may_return: bool);
}

/// Where nodes of this process join a hub, for as long as there is one.
pub(crate) struct InProcessHub {
    hub: Weak<Shared>,
    runtime: Runtime,
    role: Role,
}

/// The role of a node that joins a hub of its process.
#[derive(Clone)]
pub(crate) enum Role {
    Own,
    Gateway,
    /// It represents programs elsewhere, under this number.
    Remote(u32),
    /// It passes on what another hub says, with these permissions.
    Partner(Box<Grant>),
}

/// The hub's end of a link inside of one process.
pub struct LocalEnd {
    shared: Arc<Shared>,
    at: LinkId,
    /// The number may be that of another link by now.
    has_left: AtomicBool,
}

impl HubHandle {
    /// Where nodes of this process join it in a role, without keeping it.
    pub(crate) fn place(&self, role: Role) -> InProcessHub {
        InProcessHub { hub: Arc::downgrade(&self.shared), runtime: self.shared.runtime.clone(), role }
    }
}

impl InProcessHub {
    /// True if this is the link of the hub's gateway.
    pub fn is_gateway(&self) -> bool {
        matches!(self.role, Role::Gateway)
    }

    pub fn attach(&self, feed: Weak<dyn LocalFrameSink>) -> Option<LocalEnd> {
        Some(self.hub.upgrade()?.attach(feed, self.role.clone()))
    }

    /// Runs a task on the link thread.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }
}

impl LocalEnd {
    /// Gives whole frames to the hub.
    pub fn write(&self, frames: &[u8]) -> usize {
        self.shared.take_frames(self.at, frames);
        self.shared.settle();
        frames.len()
    }

    /// Leaves the hub, and does something once the node is given no frames of this link any more,
    /// which somebody may be at.
    pub fn leave(&self, then: impl FnOnce()) {
        let peer = self.shared.peer(self.at);
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.remove_link(self.at);
        match peer.as_deref() {
            Some(Peer::Local { writing, .. }) => writing.alone(then),
            _ => then(),
        }
    }

    /// Hands something on to the node while it is given no frames.
    pub fn in_order(&self, hand_on: impl FnOnce()) {
        if let Some(Peer::Local { writing, .. }) = self.shared.peer(self.at).as_deref() {
            writing.alone(hand_on);
        }
        self.shared.flush(self.at);
        self.shared.settle();
    }

    /// Calls that the node was given and has not answered.
    pub fn open_calls(&self) -> usize {
        self.shared.hub.lock().open_calls_of(self.at)
    }

    /// The node takes frames in again.
    pub fn resume(&self) {
        self.shared.resume(self.at);
        self.shared.settle();
    }
}

impl Drop for LocalEnd {
    fn drop(&mut self) {
        if !*self.has_left.get_mut() {
            self.shared.remove_link(self.at);
        }
    }
}

impl Shared {
    pub(super) fn attach(self: &Arc<Self>, feed: Weak<dyn LocalFrameSink>, role: Role) -> LocalEnd {
        let (secret, now_us) = (secret(), now_us());
        let at = match role {
            Role::Own => self.hub.lock().connected_own(secret, now_us),
            Role::Gateway => self.hub.lock().connected_gateway(secret, now_us),
            Role::Remote(number) => self.hub.lock().connected_remote(number, secret, now_us),
            Role::Partner(grant) => self.hub.lock().connected_partner(*grant, secret, now_us),
        };
        self.keep(at, Arc::new(Peer::Local { feed, writing: SharedWriter::new() }));
        LocalEnd { shared: Arc::clone(self), at, has_left: AtomicBool::new(false) }
    }

    /// The nodes of this process have no thread that watches their time.
    pub(super) fn tick_locals(&self) -> u64 {
        let feeds = self.feeds();
        feeds.iter().for_each(|feed| feed.tick());
        feeds.iter().map(|feed| feed.due_us()).min().unwrap_or(u64::MAX)
    }

    /// The nodes of this process.
    pub(super) fn feeds(&self) -> Vec<Arc<dyn LocalFrameSink>> {
        let local = |peer: &Arc<Peer>| if let Peer::Local { feed, .. } = &**peer { feed.upgrade() } else { None };
        self.peers.read().iter().flatten().filter_map(local).collect()
    }

    /// A node of this process takes frames in again.
    fn resume(&self, at: LinkId) {
        let Some(peer) = self.peer(at) else { return };
        let Peer::Local { feed, writing } = &*peer else { return };
        let Some(feed) = feed.upgrade() else { return };
        let take = |burst: &mut WriteBatch| self.take(at, &peer, burst.bytes());
        let resumed = writing.resume(take, |burst| fed(&*feed, burst.frames()));
        debug_assert!(resumed.is_ok(), "feeding does not fail");
    }
}

pub(super) fn fed(feed: &dyn LocalFrameSink, frames: &[u8]) -> io::Result<usize> {
    if feed.is_paused() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    feed.feed(frames);
    Ok(frames.len())
}
