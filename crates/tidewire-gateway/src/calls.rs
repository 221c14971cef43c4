//! `POST /services/NAME/METHOD`: calls of public methods.

use std::sync::Arc;
use std::time::Duration;

use hyper::Method;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use tidewire_node::values::Value;
use tidewire_node::{Client, MethodInfo};

use crate::answer::{Answer, json};
use crate::caller::{Caller, Instance};
use crate::catalog::{Service, Services};
use crate::headers::{check_json, passed, stream_form, timeout, trace};
use crate::json::{arguments, to_json};
use crate::problem::Problem;
use crate::request;
use crate::routes::{RequestHead, only};
use crate::schema::restore_integers;
use crate::server::Shared;
use crate::streams;

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead, body: Incoming) -> Result<Answer, Problem> {
    let [_, service, method] = head.path.as_slice() else {
        return Err(Problem::nothing(format!("{}: a call is POST /services/NAME/METHOD", head.shown_path())));
    };
    only(head, &[Method::POST])?;
    let caller = Caller::of(shared, &head.headers).await?;
    let services = shared.catalog.services().await?;
    let (service, method) = found(&services, service, method)?;
    let client = client(shared, &caller, service, method, head)?;
    let form = if method.stream { Some(stream_form(&head.headers)?) } else { None };
    let body = request::read(shared, body).await?;
    check_json(&head.headers, &body.bytes)?;
    let arguments = read_arguments(method, &body.bytes)?;
    let done = match form {
        Some(form) => streams::of_method(shared, client.stream(&method.name, &arguments), form).await,
        None => client
            .call(&method.name, &arguments)
            .await
            .map(|result: Value| json(to_json(&result)))
            .map_err(Problem::from),
    };
    done.map_err(|problem| problem.explained(&service.info.name, method, &body.bytes))
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
    head: &RequestHead,
) -> Result<Client, Problem> {
    let instance = caller.instance(&shared.access, service, &method.name)?;
    let client = of_headers(shared.node.client(&service.info.name), &caller.user, method, &head.headers)?;
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
