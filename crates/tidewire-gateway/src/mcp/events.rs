//! Event streams of MCP: messages that a future sends, changes of lists and streams, and progress.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value as Json, json};
use tidewire_node::values::Value;
use tidewire_node::{SubscribeOptions, Subscription};
use tokio::sync::mpsc;

use super::tools::Kind;
use super::updates::{self, Updates};
use super::{Fault, INTERNAL, NO_REQUEST, Request, message, notification, tools};
use crate::answer::Answer;
use crate::catalog::CHANGES;
use crate::headers::StreamForm;
use crate::problem::Problem;
use crate::shared::Shared;
use crate::streams::{Source, begin};

/// Lists with notifications, and the fields that ask for them.
const LISTS: [(Kind, &str); 2] = [(Kind::Tool, "toolsListChanged"), (Kind::Prompt, "promptsListChanged")];
const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Notifies a client whenever its tools or prompts change, and of new events of streams: the stream
/// of its session, or the answer of a `subscriptions/listen` with this id and these parameters. A
/// second stream of a session ends the first.
pub(super) async fn of_changes(request: Request, listens: Option<(Json, &Json)>) -> Result<Answer, Problem> {
    let is_requested = |field: &str| listens.as_ref().is_none_or(|(_, params)| params["notifications"][field] == true);
    let lists: Vec<_> = LISTS.into_iter().filter(|(_, field)| is_requested(field)).collect();
    let mut changes = ListChanges::begin(&request, &lists).await?;
    let named = match &listens {
        Some((_, params)) => updates::named(&request, &params["notifications"]["resourceSubscriptions"]).await,
        None => Vec::new(),
    };
    let mut ending = request.shared.ending.subscribe();
    let id = listens.map(|(id, _)| id);
    request.shared.sessions.cancel(&request.caller.user, &request.headers, &Json::Null);
    answer(&Arc::clone(&request.shared), |out| async move {
        let meta = id.as_ref().map_or(json!({}), |id| json!({ META_SUBSCRIPTION: id }));
        if id.is_some() {
            let mut granted: Json = lists.iter().map(|(_, field)| ((*field).to_owned(), Json::Bool(true))).collect();
            if !named.is_empty() {
                granted["resourceSubscriptions"] = named.iter().map(|(uri, _)| uri.as_str()).collect();
            }
            let granted = json!({ "notifications": granted, "_meta": meta });
            let _ = out.send(notification("subscriptions/acknowledged", granted)).await;
        }
        let mut updates = Updates::default();
        let follow = async {
            if id.is_some() {
                updates.follow(&request, named, &out, &meta);
                return std::future::pending().await;
            }
            let report = |streams| updates.follow(&request, streams, &out, &meta);
            request.shared.sessions.follow(&request.caller.user, &request.headers, report).await;
        };
        let notify = async {
            while let Some(changed) = changes.next().await {
                for kind in changed {
                    let name = format!("{}/list_changed", kind.word());
                    let _ = out.send(notification(&name, json!({ "_meta": meta }))).await;
                }
            }
            Ok(Ok(Json::Null))
        };
        tokio::select! {
            _ = until_cancelled(&request, &Json::Null, notify) => {}
            () = follow => {}
            _ = ending.wait_for(|ends| *ends) => {}
        }
        if let Some(id) = id {
            let _ = out.send(message(&id, Ok(json!({ "_meta": meta })), true).0).await;
        }
    })
    .await
}

/// The answer of a call that reports its progress: its result is the last message.
pub(super) async fn of_call(
    request: Request,
    params: Option<Box<RawValue>>,
    id: Json,
    token: Json,
    is_stateless: bool,
) -> Result<Answer, Problem> {
    answer(&Arc::clone(&request.shared), |out| async move {
        let report = |number, item: &Value, json: &[u8]| tools::progress(&token, number, item, json);
        let call = tools::call(&request, params.as_deref(), Some((&out, &report)));
        let failed = |problem: Problem| Err(Fault(INTERNAL, problem.detail().to_owned()));
        let result = until_cancelled(&request, &id, call).await.unwrap_or_else(failed);
        let _ = out.send(message(&id, result, is_stateless).0).await;
    })
    .await
}

/// Waits for a call, unless a later request cancels it.
pub(super) async fn until_cancelled(
    request: &Request,
    id: &Json,
    call: impl Future<Output = Result<Result<Json, Fault>, Problem>> + Send,
) -> Result<Result<Json, Fault>, Problem> {
    let cancelled = request.shared.sessions.enter(&request.caller.user, &request.headers, id);
    tokio::select! {
        done = call => done,
        () = cancelled => Ok(Err(Fault(NO_REQUEST, "the call was cancelled".to_owned()))),
    }
}

/// Waits for changes of the tools and prompts of one caller.
struct ListChanges {
    request: Request,
    /// Has room for one message: a change that waits stands for later ones.
    changes: Subscription,
    fingerprints: Vec<(Kind, u64)>,
}

impl ListChanges {
    async fn begin(request: &Request, lists: &[(Kind, &str)]) -> Result<Self, Problem> {
        let options = SubscribeOptions::default().capacity(1);
        let changes = request.shared.node.subscribe_with(CHANGES, options).await?;
        let mut fingerprints = Vec::new();
        for (kind, _) in lists {
            fingerprints.push((*kind, tools::fingerprint(request, *kind).await?));
        }
        Ok(Self { request: request.clone(), changes, fingerprints })
    }

    /// Waits for the next change, and returns the lists that are others; None once the gateway has
    /// ended.
    async fn next(&mut self) -> Option<Vec<Kind>> {
        loop {
            self.changes.next().await?;
            let mut changed = Vec::new();
            for (kind, last) in &mut self.fingerprints {
                // After a failure the next list of the client says what has changed.
                let found = tools::fingerprint(&self.request, *kind).await.unwrap_or(!*last);
                if std::mem::replace(last, found) != found {
                    changed.push(*kind);
                }
            }
            if !changed.is_empty() {
                return Some(changed);
            }
        }
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
async fn answer<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<Shared>,
    send: impl FnOnce(mpsc::Sender<Json>) -> F,
) -> Result<Answer, Problem> {
    let (out, sent) = mpsc::channel(1);
    let messages = Messages { send: Some(Box::pin(send(out))), sent };
    begin(shared, messages, StreamForm::Messages, Duration::ZERO).await
}
