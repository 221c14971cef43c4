//! Helpers shared by the stories.

pub mod count;
pub mod python;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidewire_node::{Node, NodeOptions, Pending};

/// How long a story waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A hub on TCP.
pub fn hub() -> Node {
    Node::listen("tide://127.0.0.1:0", NodeOptions::named("hub")).wait().expect("a hub listens")
}

/// A node of this name that has joined a hub.
pub fn join(hub: &Node, name: &str) -> Node {
    Node::join(&hub.urls()[0], NodeOptions::named(name)).wait().expect("it joins")
}

/// Channel for reports of handlers.
pub struct Told<T>(pub SyncSender<T>, Receiver<T>);

impl<T> Told<T> {
    pub fn new() -> Self {
        let (send, receive) = sync_channel(10_000);
        Self(send, receive)
    }

    /// Waits for the next one.
    pub fn next(&self) -> T {
        self.1.recv_timeout(PATIENCE).expect("it is told in time")
    }

    /// Waits for some, which come in any order.
    pub fn some<const N: usize>(&self) -> [T; N]
    where
        T: Ord,
    {
        let mut some = std::array::from_fn(|_| self.next());
        some.sort_unstable();
        some
    }

    /// The next report, if there is one already.
    pub fn now(&self) -> Option<T> {
        self.1.try_recv().ok()
    }

    pub fn is_quiet(&self) -> bool {
        self.1.try_recv().is_err()
    }
}

/// Waits for something that must come.
pub fn in_time<T: Send + 'static>(pending: Pending<T>) -> T {
    let (send, done) = sync_channel(1);
    std::thread::spawn(move || send.send(pending.wait()));
    done.recv_timeout(PATIENCE).expect("it comes in time").expect("it does not fail")
}

/// Tells when it is dropped, and panics if it says so.
pub struct OnDrop(pub SyncSender<&'static str>, pub &'static str);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
        assert_ne!(self.1, "panics");
    }
}

/// A unique path for a Unix socket.
pub fn socket() -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tidewire-node-{}-{number}.sock", std::process::id()))
}

/// The URL of such a socket.
pub fn unix_url() -> String {
    format!("tide+unix://{}", socket().display())
}

/// Ready once it has been opened.
#[derive(Clone, Default)]
pub struct Latch(Arc<(AtomicBool, Mutex<Vec<Waker>>)>);

impl Latch {
    pub fn open(&self) {
        self.0.0.store(true, Ordering::SeqCst);
        self.0.1.lock().expect("no panic").drain(..).for_each(Waker::wake);
    }
}

impl Future for Latch {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.1.lock().expect("no panic").push(context.waker().clone());
        if self.0.0.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}
