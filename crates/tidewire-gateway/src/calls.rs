//! `POST /services/NAME/METHOD`: calls of public methods.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::{Method, StatusCode};
use tidewire_node::values::Value;
use tidewire_node::{Client, MethodInfo};

use crate::answer::{Answer, json, nothing};
use crate::caller::{Caller, Instance};
use crate::catalog::{Service, Services};
use crate::headers::{boundary, check_json, passed, stream_form, timeout, trace};
use crate::json::{arguments, to_json};
use crate::multipart::{self, Arguments};
use crate::problem::Problem;
use crate::request;
use crate::request::{RequestHead, only};
use crate::schema::{query_arguments, restore_integers};
use crate::shared::Shared;
use crate::{repeats, streams};

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead, body: Incoming) -> Result<Answer, Problem> {
    let [_, service, method] = head.path.as_slice() else {
        return Err(Problem::nothing(format!("{}: a call is POST /services/NAME/METHOD", head.shown_path())));
    };
    let caller = Caller::of(shared, &head.headers).await?;
    let services = shared.catalog.services().await?;
    let (service, method) = found(&services, service, method)?;
    only(head, if method.safe { &[Method::POST, Method::GET] } else { &[Method::POST] })?;
    let is_get = head.method != Method::POST;
    let client = client(shared, &caller, service, method, &head.headers)?;
    let form = if method.stream { Some(stream_form(&head.headers)?) } else { None };
    let boundary = if is_get { None } else { boundary(&head.headers)? };
    let is_json = !is_get && boundary.is_none();
    let (body, upload) = match boundary {
        Some(boundary) => request::in_time(shared, multipart::form(shared, method, boundary, body)).await?,
        None => (request::read(shared, body).await?, None),
    };
    let bytes = if is_get { query_arguments(method, &head.query)?.into() } else { body.bytes.clone() };
    if is_json {
        check_json(&head.headers, &bytes)?;
    }
    let arguments = Arguments { values: read_arguments(method, &bytes)?, upload };
    let done = match form {
        Some(form) => streams::of_method(shared, client.stream(&method.name, &arguments), form).await,
        None => {
            let begin = || {
                let call = client.call(&method.name, &arguments);
                async { call.await.map(|result: Value| Bytes::from(to_json(&result))).map_err(Problem::from) }
            };
            let done = match repeats::key(&caller.user, &head.path, &head.headers)? {
                Some(_) if arguments.upload.is_some() => {
                    let text = "Idempotency-Key: a file that is read as a stream has none: leave it out";
                    return Err(Problem::invalid(text));
                }
                Some(key) => shared.repeats.once(key, &bytes, begin).await,
                None => begin().await,
            };
            done.map(json)
        }
    };
    let answer = done.map_err(|problem| problem.explained(&service.info.name, method, &bytes))?;
    Ok(if is_get { tagged(&head.headers, answer) } else { answer })
}

/// The answer with a tag of its content; 304 if the client has that content already.
fn tagged(request: &HeaderMap, mut answer: Answer) -> Answer {
    let Some(bytes) = answer.body().bytes() else { return answer };
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let tag = format!("W/\"{:016x}\"", hasher.finish());
    let known = request.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    if known.is_some_and(|tags| tags.split(',').any(|one| one.trim() == tag || one.trim() == "*")) {
        answer = nothing(StatusCode::NOT_MODIFIED);
    }
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    answer.headers_mut().extend(HeaderValue::from_str(&tag).ok().map(|tag| (ETAG, tag)));
    answer
}

/// The arguments in a body, with the integers that the method wants.
pub(crate) fn read_arguments(method: &MethodInfo, body: &[u8]) -> Result<Value, Problem> {
    let mut read = arguments(body).map_err(Problem::invalid)?;
    restore_integers(&method.parameters, &mut read);
    Ok(read)
}

/// A public method.
pub(crate) fn found<'a>(
    services: &'a Services,
    service: &str,
    method: &str,
) -> Result<(&'a Service, &'a MethodInfo), Problem> {
    let Some(known) = services.get(service) else {
        let text = format!("no public service has the name {service:?}, or nobody serves it now");
        return Err(Problem::nothing(format!("{text}: /openapi.json lists all")));
    };
    known
        .method(method)
        .map(|found| (known, found))
        .ok_or_else(|| Problem::nothing(format!("{service} has no public method {method:?}: /openapi.json lists all")))
}

/// The client of a method, with the options of its caller.
pub(crate) fn client(
    shared: &Shared,
    caller: &Caller,
    service: &Service,
    method: &MethodInfo,
    headers: &HeaderMap,
) -> Result<Client, Problem> {
    let instance = caller.instance(&shared.access, service, &method.name)?;
    let client = of_headers(shared.node.client(&service.info.name), &caller.user, method, headers)?;
    Ok(match instance {
        Instance::Any => client,
        Instance::One(id) => client.instance(id),
    })
}

/// The same client with the options from the headers of a request, on behalf of a user.
pub(crate) fn of_headers(
    client: Client,
    user: &str,
    method: &MethodInfo,
    headers: &HeaderMap,
) -> Result<Client, Problem> {
    let mut client = client.on_behalf(user, trace(headers));
    for (name, value) in passed(headers)? {
        client = client.header(name, value);
    }
    let declared = method.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = timeout(headers)?.or(declared.filter(|time| !time.is_zero()));
    Ok(match time {
        Some(time) => client.timeout(time),
        None => client,
    })
}
