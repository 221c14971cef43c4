//! `/commands/SERVICE/COMMAND`: starts of commands of public services, and their states.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream as _;
use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, StatusCode};
use serde_json::{Value as Json, json as object};
use tidewire_node::streams::{CommandInfo, CommandRun, Stage, StartOptions};
use tidewire_node::values::{Value, from_bytes, to_bytes};
use tidewire_node::{Items, MethodInfo, Priority};
use tidewire_proto::generated::errors::ErrorCode;

use crate::answer::{Answer, json};
use crate::caller::Caller;
use crate::calls::read_arguments;
use crate::catalog::{Service, Services};
use crate::headers::{check_json, stream_form, timeout};
use crate::json::{to_json, write_json};
use crate::problem::Problem;
use crate::request::{RequestHead, only};
use crate::shared::Shared;
use crate::streams::{Source, begin};
use crate::{repeats, request};

const PRIORITIES: [(&str, Priority); 4] =
    [("urgent", Priority::Urgent), ("high", Priority::High), ("normal", Priority::Normal), ("low", Priority::Low)];
/// Fields of a state that are for nodes alone.
const PRIVATE: [&str; 3] = ["caller", "worker", "traceback"];
/// How long a stream of reports waits for its first one, so that a failure has a status.
const FIRST: Duration = Duration::from_millis(500);

pub(crate) async fn answer(shared: &Arc<Shared>, head: &RequestHead, body: Incoming) -> Result<Answer, Problem> {
    let path: Vec<&str> = head.path.iter().map(String::as_str).collect();
    let [_, service, command, rest @ ..] = &*path else {
        let text = "POST /commands/SERVICE/COMMAND starts a command";
        return Err(Problem::nothing(format!("{}: {text}", head.shown_path())));
    };
    let caller = Caller::of(shared, &head.headers).await?;
    let services = shared.catalog.services().await?;
    let known = services.get(*service).and_then(|service| Some((service, service.command(command)?)));
    let Some((service, command)) = known else {
        let text = format!("no public service has the command {service}.{command}, or nobody serves it now");
        return Err(Problem::nothing(format!("{text}: /openapi.json lists all")));
    };
    caller.instance(&shared.access, service, &command.name)?;
    if let [id, ..] = rest {
        only(head, &[if rest.get(1) == Some(&"cancel") { Method::POST } else { Method::GET }])?;
        let (run, info) = find(shared, &caller, &services, id).await?;
        if (&info.service, &info.command) != (&service.info.name, &command.name) {
            return Err(none(id));
        }
        return match rest[1..] {
            [] => Ok(json(state(&run, timeout(&head.headers)?).await?.to_string())),
            ["cancel"] => {
                run.cancel().await?;
                Ok(json(state(&run, None).await?.to_string()))
            }
            ["progress"] => {
                let items = shared.node.client("tidewire-commands").stream("progress", &(id,));
                begin(shared, Reports(items), stream_form(&head.headers)?, FIRST).await
            }
            _ => Err(Problem::nothing(format!("{}: there is ID, ID/progress and ID/cancel", head.shown_path()))),
        };
    }
    only(head, &[Method::POST])?;
    let options = options(service, command, form_urlencoded::parse(head.query.as_bytes()))?;
    let body = request::read(shared, body).await?;
    check_json(&head.headers, &body.bytes)?;
    let begin = || {
        let run = start(shared, service, command, &body.bytes, options);
        async { Ok(Bytes::from(run?.await?.id().to_owned())) }
    };
    let id = match repeats::key(&caller.user, &head.path, &head.headers)? {
        Some(key) => shared.repeats.once(key, &body.bytes, begin).await?,
        None => begin().await?,
    };
    let id = String::from_utf8_lossy(&id);
    let mut answer = json(object!({ "id": id }).to_string());
    *answer.status_mut() = StatusCode::ACCEPTED;
    let escaped: String = form_urlencoded::byte_serialize(id.as_bytes()).collect();
    let location = HeaderValue::from_str(&format!("/commands/{}/{}/{escaped}", service.info.name, command.name));
    answer.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
    Ok(answer)
}

/// The options of a start by their names.
pub(crate) fn options(
    service: &Service,
    command: &MethodInfo,
    pairs: impl Iterator<Item = (impl AsRef<str>, impl AsRef<str>)>,
) -> Result<StartOptions, Problem> {
    let (mut options, mut has_key) = (StartOptions::default(), false);
    for (name, text) in pairs {
        let (name, text) = (name.as_ref(), text.as_ref());
        has_key |= name == "key";
        options = match name {
            "key" => options.key(text),
            "id" => options.id(text),
            "priority" => {
                let known = PRIORITIES.iter().find(|(known, _)| *known == text);
                let wrong = || Problem::invalid(format!("priority: {text:?}: give urgent, high, normal or low"));
                options.priority(known.ok_or_else(wrong)?.1)
            }
            _ => return Err(Problem::invalid(format!("query: {name:?} is unknown: there is key, id and priority"))),
        };
    }
    if service.is_exclusive(command) && !has_key {
        let title = format!("{}.{}", service.info.name, command.name);
        return Err(Problem::invalid(format!("{title}: key: it is missing: of each key one command runs at a time")));
    }
    Ok(options)
}

/// Starts a command whose arguments fit.
pub(crate) fn start(
    shared: &Shared,
    service: &Service,
    command: &MethodInfo,
    body: &[u8],
    options: StartOptions,
) -> Result<tidewire_node::Pending<CommandRun>, Problem> {
    let arguments = match read_arguments(command, body)? {
        Value::List(items) => Value::Tuple(items),
        arguments => arguments,
    };
    Problem::check_arguments(&service.info.name, command, body)?;
    Ok(shared.node.commands().start_with(&service.info.name, &command.name, &arguments, options))
}

/// A command by its id, if the caller may start it.
pub(crate) async fn find(
    shared: &Shared,
    caller: &Caller,
    services: &Services,
    id: &str,
) -> Result<(CommandRun, CommandInfo), Problem> {
    let run = shared.node.commands().find(id);
    let info = run.info().await.map_err(|error| match error.code() {
        ErrorCode::NotFound => none(id),
        _ => error.into(),
    })?;
    let service = services.get(&info.service).filter(|service| service.command(&info.command).is_some());
    let may = service.is_some_and(|service| caller.may_call(&shared.access, service, &info.command));
    if may { Ok((run, info)) } else { Err(none(id)) }
}

fn none(id: &str) -> Problem {
    Problem::new(ErrorCode::NotFound, format!("command {id:?}: there is none, or it ended too long ago"))
}

/// The state of a command, once it is over or after this time.
pub(crate) async fn state(run: &CommandRun, wait: Option<Duration>) -> Result<Json, Problem> {
    if let Some(wait) = wait {
        // The outcome is a part of the state.
        let _ = run.result_within::<Value>(wait).await;
    }
    let info = run.info().await?;
    let mut state = json_of(&from_bytes(&to_bytes(&info)?)?);
    state.as_object_mut().into_iter().for_each(|state| state.retain(|name, _| !PRIVATE.contains(&&**name)));
    if info.stage.is_over() {
        match run.result_within::<Value>(Duration::ZERO).await {
            Ok(result) => state["result"] = result.as_ref().map_or(Json::Null, json_of),
            Err(error) if info.stage == Stage::Succeeded => return Err(error.into()),
            Err(error) => state["problem"] = Problem::from(error).json(),
        }
    }
    Ok(state)
}

fn json_of(value: &Value) -> Json {
    serde_json::from_slice(&to_json(value)).unwrap_or_default()
}

/// The reports of a command, each as an object.
struct Reports(Items<Value>);

impl Source for Reports {
    fn poll_json(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Result<(), Problem>>> {
        let report = ready!(Pin::new(&mut self.0).poll_next(context));
        Poll::Ready(report.map(|report| {
            let (Value::List(parts) | Value::Tuple(parts)) = report? else { return Ok(()) };
            let names = ["fraction", "note", "attempt", "time"].map(|name| Value::Text(name.to_owned()));
            write_json(out, &Value::Map(names.into_iter().zip(parts).collect()));
            Ok(())
        }))
    }
}
