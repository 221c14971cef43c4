//! `/subjects/SUBJECT`: POST publishes, GET subscribes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use hyper::body::Incoming;
use hyper::{Method, StatusCode};
use tidewire_node::values::Value;
use tidewire_node::{SubscribeOptions, Subscription};

use crate::answer::{Answer, nothing};
use crate::caller::Caller;
use crate::headers::{check_json, passed, stream_form};
use crate::json::{value, write_json};
use crate::problem::Problem;
use crate::request;
use crate::request::{RequestHead, only};
use crate::shared::Shared;
use crate::streams::{Source, begin};

/// Messages that wait for one client; further ones are dropped.
const WAITING: usize = 256;

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead, body: Incoming) -> Result<Answer, Problem> {
    let [_, subject] = head.path.as_slice() else {
        return Err(Problem::nothing(format!(
            "{}: publish with POST, subscribe with GET on /subjects/SUBJECT",
            head.shown_path()
        )));
    };
    only(head, &[Method::POST, Method::GET])?;
    let caller = Caller::of(shared, &head.headers).await?;
    if head.method == Method::POST {
        return publish(shared, head, &caller, subject, body).await;
    }
    caller.check_subscribe(&shared.access, subject)?;
    let form = stream_form(&head.headers)?;
    let options = SubscribeOptions::default().capacity(WAITING);
    let options = match queue(&head.query)? {
        Some(queue) => options.queue(queue),
        None => options,
    };
    let subscription = shared.node.subscribe_with(subject, options).await?;
    // The subscription is active: a client that waits for the response headers misses no message.
    begin(shared, Messages(subscription), form, Duration::ZERO).await
}

async fn publish(
    shared: &Arc<Shared>,
    head: &RequestHead,
    caller: &Caller,
    subject: &str,
    body: Incoming,
) -> Result<Answer, Problem> {
    caller.check_publish(&shared.access, subject)?;
    let body = request::read(shared, body).await?;
    check_json(&head.headers, &body.bytes)?;
    let payload = match body.bytes.is_empty() {
        true => Value::Nil,
        false => value(&body.bytes).map_err(Problem::invalid)?,
    };
    let mut to = shared.node.subject(subject).on_behalf(&caller.user);
    for (name, value) in passed(&head.headers)? {
        to = to.header(name, value);
    }
    to.publish(&payload)?;
    Ok(nothing(StatusCode::ACCEPTED))
}

/// The queue group that the query names.
fn queue(query: &str) -> Result<Option<String>, Problem> {
    let mut found = None;
    for part in query.split('&').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some(("queue", name)) if found.is_none() => found = Some(name.to_owned()),
            _ => return Err(Problem::invalid(format!("query: {part:?} is not allowed: there is queue=NAME, once"))),
        }
    }
    Ok(found)
}

/// Messages on a subject, with subject, headers and sender beside the payload.
struct Messages(Subscription);

impl Source for Messages {
    fn poll_json(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Result<(), Problem>>> {
        loop {
            let Some(message) = std::task::ready!(Pin::new(&mut self.0).poll_next(context)) else {
                return Poll::Ready(None);
            };
            // A payload that is no data is meant for other subscribers.
            let Ok(payload) = message.read::<Value>() else { continue };
            let text = |text: &str| Value::Text(text.to_owned());
            let headers = message.headers().iter().map(|(name, value)| (text(name), text(value))).collect();
            let event = Value::Map(vec![
                (text("subject"), text(message.subject())),
                (text("payload"), payload),
                (text("headers"), Value::Map(headers)),
                (text("node"), text(message.node())),
                (text("user"), message.user().map_or(Value::Nil, text)),
            ]);
            write_json(out, &event);
            return Poll::Ready(Some(Ok(())));
        }
    }
}
