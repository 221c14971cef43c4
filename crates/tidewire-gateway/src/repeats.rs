//! Calls with an `Idempotency-Key`: a request that comes again gets the answer of the first.

use std::collections::VecDeque;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use tidewire_proto::generated::errors::ErrorCode;
use tokio::sync::watch;

use crate::problem::Problem;

const KEY: &str = "idempotency-key";
/// Time for which an answer is stored.
const AGE: Duration = Duration::from_secs(600);
/// Answers that are stored, and their bytes; the oldest ones make room.
const ANSWERS: usize = 1_000;
const BYTES: usize = 16 * 1024 * 1024;

type Done = Result<Bytes, Problem>;

/// The answers that are stored. The lock is held for one look or change.
#[derive(Default)]
pub(crate) struct Repeats(Mutex<VecDeque<Call>>);

struct Call {
    key: String,
    /// Hash of the body.
    body: u64,
    since: Instant,
    done: watch::Receiver<Option<Done>>,
}

/// The key of a request: of one user and one method.
pub(crate) fn key(user: &str, path: &[String], headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get(KEY) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= 255);
    let key = key.ok_or_else(|| Problem::invalid("Idempotency-Key: give 1 to 255 letters of ASCII"))?;
    Ok(Some(format!("{user}\n{}\n{key}", path.join("/"))))
}

impl Repeats {
    /// Begins a call unless its key is known, and waits for its answer. A client that leaves does
    /// not cancel the call.
    pub async fn once<F>(self: &Arc<Self>, key: String, body: &[u8], begin: impl FnOnce() -> F) -> Done
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        let mut done = self.enter(key, hasher.finish(), begin)?;
        let gone = || Problem::new(ErrorCode::NodeStopped, "the gateway is stopping: ask again later");
        done.wait_for(Option::is_some).await.ok().and_then(|done| done.clone()).ok_or_else(gone)?
    }

    fn enter<F>(
        self: &Arc<Self>,
        key: String,
        body: u64,
        begin: impl FnOnce() -> F,
    ) -> Result<watch::Receiver<Option<Done>>, Problem>
    where
        F: Future<Output = Done> + Send + 'static,
    {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.retain(|call| call.since.elapsed() < AGE);
        if let Some(call) = calls.iter().find(|call| call.key == key) {
            let text = "Idempotency-Key: it was used with another body: give each request a key of its own";
            let differs = || Problem::invalid(text).with_status(StatusCode::UNPROCESSABLE_ENTITY);
            return if call.body == body { Ok(call.done.clone()) } else { Err(differs()) };
        }
        let bytes = |call: &Call| call.done.borrow().as_ref().map_or(0, |done| done.as_ref().map_or(0, Bytes::len));
        while calls.len() >= ANSWERS || calls.iter().map(bytes).sum::<usize>() > BYTES {
            calls.pop_front();
        }
        let (sender, done) = watch::channel(None);
        calls.push_back(Call { key: key.clone(), body, since: Instant::now(), done: done.clone() });
        let (called, repeats) = (begin(), Arc::clone(self));
        tokio::spawn(async move {
            let done = called.await;
            if done.as_ref().is_err_and(Problem::retryable) {
                // The client is to send it again.
                repeats.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|call| call.key != key);
            }
            sender.send_replace(Some(done));
        });
        Ok(done)
    }
}
