//! Calls and event streams of MCP sessions, so that a later request can end them.

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::HeaderMap;
use serde_json::Value as Json;
use tokio::sync::Notify;

/// The header that names a session.
pub(super) const HEADER: &str = "mcp-session-id";

/// A caller, the name of its session and the id of the request; null for its event stream.
type Key = (String, String, String);

/// The calls that run. The lock is held for one look or change.
#[derive(Default)]
pub(crate) struct Sessions(Mutex<HashMap<Key, Arc<Notify>>>);

impl Sessions {
    /// Registers a call until the future is dropped, which ends once the call is cancelled. Calls
    /// without a session are cancelled by the end of their connection alone.
    pub(super) fn enter<'a>(&'a self, user: &str, headers: &HeaderMap, id: &Json) -> impl Future<Output = ()> + 'a {
        let key = key(user, headers, id);
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
        if let Some(call) = key(user, headers, id).and_then(|key| self.calls().remove(&key)) {
            call.notify_one();
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

fn key(user: &str, headers: &HeaderMap, id: &Json) -> Option<Key> {
    let session = headers.get(HEADER)?.to_str().ok()?;
    Some((user.to_owned(), session.to_owned(), id.to_string()))
}

/// A name that others do not guess.
pub(super) fn new_name() -> String {
    let random = || RandomState::new().hash_one(HEADER);
    format!("{:016x}{:016x}", random(), random())
}
