//! Requests to an endpoint: JSON of the arguments in, JSON of the result or of a problem out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_nats::Message;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tidewire_node::MethodInfo;
use tidewire_node::values::Value;
use tidewire_proto::generated::errors::ErrorCode;

use super::instance::Serving;
use super::{REQUESTS, Shared};
use crate::calls::{of_headers, read_arguments};
use crate::headers::check_json;
use crate::json::to_json;
use crate::problem::Problem;
use crate::streams::collected;

/// Headers of an error reply.
const CODE: &str = "Nats-Service-Error-Code";
const ERROR: &str = "Nats-Service-Error";
/// How often a call goes to any instance, once the one that was meant has left. It may meet that
/// one again until the hub has heard of it.
const OTHERS: usize = 8;
/// Maximal length of an error in a header.
const ERROR_CHARACTERS: usize = 500;

/// Permit of an open request.
struct RequestPermit(Arc<Shared>);

/// Begins to answer a request.
pub(super) fn take(serving: &Arc<Serving>, message: Message) {
    let (serving, since) = (Arc::clone(serving), Instant::now());
    let place = RequestPermit::take(&serving.shared);
    tokio::spawn(async move {
        let Some(method) = serving.method(&message.subject) else { return };
        let done = match &place {
            Ok(_) => {
                let done = called(&serving, method, &message).await;
                done.map_err(|problem| problem.explained(&serving.info.name, method, &message.payload))
            }
            Err(most) => {
                let text = format!("nats_requests={most}: so many requests are under way: try again later");
                Err(Problem::new(ErrorCode::LimitExceeded, text))
            }
        };
        let done = done.and_then(|json| fitting(&serving.shared, json));
        let error = done.as_ref().err().map(header_of);
        serving.count(&method.name, since.elapsed(), error.as_deref());
        let client = &serving.shared.client;
        let Some(reply) = message.reply else { return };
        // Without a connection the reply is lost.
        match (done, error) {
            (Err(problem), Some(error)) => {
                let mut headers = async_nats::HeaderMap::new();
                headers.insert(CODE, problem.status.as_str());
                headers.insert(ERROR, error);
                drop(client.publish_with_headers(reply, headers, problem.json().to_string().into()).await);
            }
            (Ok(json), _) => drop(client.publish(reply, json.into()).await),
            (Err(_), None) => {}
        }
    });
}

async fn called(serving: &Serving, method: &MethodInfo, message: &Message) -> Result<Vec<u8>, Problem> {
    let headers = headers_of(message)?;
    if headers.contains_key(CONTENT_TYPE) || headers.contains_key(CONTENT_ENCODING) {
        check_json(&headers, &message.payload)?;
    }
    let arguments = read_arguments(method, &message.payload)?;
    // NATS itself checks the permissions of clients.
    let any = of_headers(serving.shared.node.client(&serving.info.name), "", method, &headers)?;
    let here = any.clone().instance(&*serving.id);
    if method.stream {
        return collected(here.stream(&method.name, &arguments), None).await;
    }
    let mut done = here.call::<Value>(&method.name, &arguments).await;
    for _ in 0..OTHERS {
        match &done {
            // It has left, and NATS or the hub did not know yet: nothing of the call has begun.
            Err(left) if left.code() == ErrorCode::NoResponders => done = any.call(&method.name, &arguments).await,
            _ => break,
        }
    }
    Ok(to_json(&done?))
}

/// The headers of a message, as the gateway over HTTP has them.
pub(super) fn headers_of(message: &Message) -> Result<HeaderMap, Problem> {
    let mut headers = HeaderMap::new();
    for (name, values) in message.headers.iter().flat_map(|all| all.iter()) {
        let name: &str = name.as_ref();
        let wrong = || Problem::invalid(format!("header: {name:?} is not one of ASCII, as of HTTP: leave it out"));
        let known = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        for value in values {
            let value = HeaderValue::from_str(value.as_str()).map_err(|_| wrong())?;
            headers.append(known.clone(), value);
        }
    }
    Ok(headers)
}

/// Refuses a result that is too long for a message.
fn fitting(shared: &Shared, json: Vec<u8>) -> Result<Vec<u8>, Problem> {
    let most = shared.client.server_info().max_payload;
    if most == 0 || json.len() <= most {
        return Ok(json);
    }
    let bytes = json.len();
    let text = format!(
        "the result has {bytes} bytes, more than max_payload={most} of the server: call it over HTTP, or as a node"
    );
    Err(Problem::new(ErrorCode::LimitExceeded, text))
}

/// The problem in one line, for a header.
fn header_of(problem: &Problem) -> String {
    let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
    problem.detail().chars().take(ERROR_CHARACTERS).map(plain).collect()
}

impl RequestPermit {
    fn take(shared: &Arc<Shared>) -> Result<Self, usize> {
        // Instances of one gateway read on one thread.
        if shared.in_flight.load(Ordering::Relaxed) >= REQUESTS {
            return Err(REQUESTS);
        }
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(Self(Arc::clone(shared)))
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}
