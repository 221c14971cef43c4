//! Calls, event streams and subscriptions of MCP sessions, for later requests of the session.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::HeaderMap;
use serde_json::Value as Json;
use tokio::sync::{Notify, watch};

/// The header that names a session.
pub(super) const HEADER: &str = "mcp-session-id";

/// A caller, the name of its session and the id of the request; null for its event stream.
type Key = (String, String, String);

/// Subscriptions to streams of a user, and of one event stream.
pub(super) const SUBSCRIPTIONS: usize = 32;

/// The calls that run, under a lock that is held for one look or change. Subscriptions have a URI
/// in their key, and the last sequence at their time; the oldest is the first.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Key, Arc<Notify>>>, watch::Sender<Vec<(Key, u64)>>);

impl Sessions {
    /// Registers a call until the future is dropped, which ends once the call is cancelled. Calls
    /// without a session are cancelled by the end of their connection alone.
    pub(super) fn enter<'a>(&'a self, user: &str, headers: &HeaderMap, id: &Json) -> impl Future<Output = ()> + 'a {
        let key = key(user, headers, &id.to_string());
        let cancelled = Arc::new(Notify::new());
        if let Some(key) = &key {
            self.calls().insert(key.clone(), Arc::clone(&cancelled));
        }
        let entry = RegisteredCall(self, key, Arc::clone(&cancelled));
        async move {
            cancelled.notified().await;
            drop(entry);
        }
    }

    pub(super) fn cancel(&self, user: &str, headers: &HeaderMap, id: &Json) {
        if let Some(call) = key(user, headers, &id.to_string()).and_then(|key| self.calls().remove(&key)) {
            call.notify_one();
        }
    }

    /// Begins a subscription, in place of the user's oldest one if there are too many, or ends it;
    /// false without a session.
    pub(super) fn subscribe(&self, user: &str, headers: &HeaderMap, uri: &str, last: Option<u64>) -> bool {
        let Some(key) = key(user, headers, uri) else { return false };
        self.1.send_modify(|all| {
            all.retain(|(one, _)| *one != key);
            let mut own = all.iter().enumerate().filter(|(_, (one, _))| one.0 == user);
            let oldest = own.next().map_or(0, |(at, _)| at);
            if last.is_some() && own.count() + 1 >= SUBSCRIPTIONS {
                all.remove(oldest);
            }
            all.extend(last.map(|last| (key, last)));
        });
        true
    }

    /// Reports the subscriptions of a session now, and after each change.
    pub(super) async fn follow(&self, user: &str, headers: &HeaderMap, mut report: impl FnMut(Vec<(String, u64)>)) {
        let Some(session) = key(user, headers, "") else { return std::future::pending().await };
        let mut changes = self.1.subscribe();
        loop {
            let all = changes.borrow_and_update().clone();
            let own = all.into_iter().filter(|(one, _)| (&one.0, &one.1) == (&session.0, &session.1));
            report(own.map(|(one, last)| (one.2, last)).collect());
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<Key, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct RegisteredCall<'a>(&'a Sessions, Option<Key>, Arc<Notify>);

impl Drop for RegisteredCall<'_> {
    fn drop(&mut self) {
        let Some(key) = &self.1 else { return };
        let mut calls = self.0.calls();
        if calls.get(key).is_some_and(|call| Arc::ptr_eq(call, &self.2)) {
            calls.remove(key);
        }
    }
}

fn key(user: &str, headers: &HeaderMap, id: &str) -> Option<Key> {
    let session = headers.get(HEADER)?.to_str().ok()?;
    Some((user.to_owned(), session.to_owned(), id.to_owned()))
}

/// A name that others do not guess.
pub(super) fn new_name() -> String {
    let random = || RandomState::new().hash_one(HEADER);
    format!("{:016x}{:016x}", random(), random())
}
