//! Event streams of MCP: messages that a future sends, changes of the tools, and progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::ACCEPT;
use serde_json::{Value as Json, json};
use tidewire_node::{SubscribeOptions, Subscription};
use tokio::sync::mpsc;

use super::tools::{Progress, ToolCall};
use super::{Fault, NO_REQUEST, Request, message, tools};
use crate::answer::Answer;
use crate::caller::Caller;
use crate::catalog::CHANGES;
use crate::headers::{StreamForm, media_type};
use crate::problem::Problem;
use crate::shared::Shared;
use crate::streams::{Source, begin};

const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
const TOOLS: &str = "tools/list_changed";

/// True if the client takes an event stream as the answer.
pub(super) fn accepts(headers: &HeaderMap) -> bool {
    let all = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).any(|one| media_type(one) == "text/event-stream")
}

/// The stream of a session: a notification whenever its tools change. A second stream of the
/// session ends the first.
pub(super) async fn of_session(request: &Request<'_>) -> Result<Answer, Problem> {
    let mut changes = ToolChanges::begin(request).await?;
    let (shared, caller) = (Arc::clone(request.shared), request.caller.clone());
    let headers = request.head.headers.clone();
    shared.sessions.cancel(&caller.user, &headers, &Json::Null);
    answer(request.shared, |out| async move {
        let ended = shared.sessions.enter(&caller.user, &headers, &Json::Null);
        tokio::select! {
            () = ended => {}
            () = async {
                while changes.next().await {
                    let _ = out.send(notification(TOOLS, json!({}))).await;
                }
            } => {}
        }
    })
    .await
}

/// The answer of `subscriptions/listen`.
pub(super) async fn listen(request: &Request<'_>, id: Json, params: &Json) -> Result<Answer, Problem> {
    let mut changes = ToolChanges::begin(request).await?;
    let mut ending = request.shared.ending.subscribe();
    let is_wanted = params["notifications"]["toolsListChanged"] == true;
    answer(request.shared, |out| async move {
        let meta = json!({ META_SUBSCRIPTION: id });
        let granted = if is_wanted { json!({ "toolsListChanged": true }) } else { json!({}) };
        let granted = json!({ "notifications": granted, "_meta": meta });
        let _ = out.send(notification("subscriptions/acknowledged", granted)).await;
        let mut next = async || {
            tokio::select! {
                _ = ending.wait_for(|ends| *ends) => false,
                has_changed = changes.next() => has_changed,
            }
        };
        while next().await {
            if is_wanted {
                let _ = out.send(notification(TOOLS, json!({ "_meta": meta }))).await;
            }
        }
        let result = json!({ "_meta": meta, "resultType": "complete" });
        let _ = out.send(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    })
    .await
}

pub(super) fn notification(name: &str, params: Json) -> Json {
    json!({ "jsonrpc": "2.0", "method": format!("notifications/{name}"), "params": params })
}

/// The answer of a call that reports its progress: its result is the last message.
pub(super) async fn of_call(
    request: &Request<'_>,
    call: ToolCall,
    id: Json,
    token: Json,
    is_stateless: bool,
) -> Result<Answer, Problem> {
    let (shared, user) = (Arc::clone(request.shared), request.caller.user.clone());
    let headers = request.head.headers.clone();
    answer(request.shared, |out| async move {
        let progress = Progress { token, out: out.clone() };
        let result = until_cancelled(&shared, &user, &headers, &id, call.result(Some(progress))).await;
        let _ = out.send(message(&id, result, is_stateless).0).await;
    })
    .await
}

/// Waits for a call, unless a later request cancels it.
pub(super) async fn until_cancelled(
    shared: &Shared,
    user: &str,
    headers: &HeaderMap,
    id: &Json,
    call: impl Future<Output = Json> + Send,
) -> Result<Json, Fault> {
    let cancelled = shared.sessions.enter(user, headers, id);
    tokio::select! {
        done = call => Ok(done),
        () = cancelled => Err(Fault(NO_REQUEST, "the call was cancelled".to_owned())),
    }
}

/// Waits for changes of the tools of one caller.
struct ToolChanges {
    shared: Arc<Shared>,
    caller: Caller,
    /// Has room for one message: a change that waits stands for later ones.
    changes: Subscription,
    fingerprint: u64,
}

impl ToolChanges {
    async fn begin(request: &Request<'_>) -> Result<Self, Problem> {
        let (shared, caller) = (Arc::clone(request.shared), request.caller.clone());
        let changes = shared.node.subscribe_with(CHANGES, SubscribeOptions::default().capacity(1)).await?;
        let fingerprint = tools::fingerprint(&shared, &caller).await?;
        Ok(Self { shared, caller, changes, fingerprint })
    }

    /// Waits for the next change; false once the gateway has ended.
    async fn next(&mut self) -> bool {
        while self.changes.next().await.is_some() {
            match tools::fingerprint(&self.shared, &self.caller).await {
                Ok(same) if same == self.fingerprint => {}
                Ok(other) => {
                    self.fingerprint = other;
                    return true;
                }
                // The client learns of the change, or of the failure, from its next list.
                Err(_) => return true,
            }
        }
        false
    }
}

/// Messages from a future.
struct Messages<F> {
    send: Option<Pin<Box<F>>>,
    sent: mpsc::Receiver<Json>,
}

impl<F: Future<Output = ()> + Send + 'static> Source for Messages<F> {
    fn poll_json(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Result<(), Problem>>> {
        if self.send.as_mut().is_some_and(|send| send.as_mut().poll(context).is_ready()) {
            self.send = None;
        }
        let message = std::task::ready!(self.sent.poll_recv(context));
        Poll::Ready(message.map(|message| {
            out.extend_from_slice(message.to_string().as_bytes());
            Ok(())
        }))
    }
}

/// An event stream of the messages that the future sends. One waits for the client at most, and the
/// future with it.
pub(super) async fn answer<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<Shared>,
    send: impl FnOnce(mpsc::Sender<Json>) -> F,
) -> Result<Answer, Problem> {
    let (out, sent) = mpsc::channel(1);
    let messages = Messages { send: Some(Box::pin(send(out))), sent };
    begin(shared, messages, StreamForm::Messages, Duration::ZERO).await
}
