//! The service `$sys`: statistics of a node for `tidewire top`, the console and metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{self, Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tidewire_engine::raw::{Mutex, clock};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::grammar::INSPECTION;

use super::rows::{self, RowQuery};
use super::snapshot;
use super::span_store::ANSWER_SPANS_MAX;
use crate::discovery::Visibility;
use crate::error::Error;
use crate::node::core::{Core, Node};
use crate::pending::Pending;
use crate::services::failure::Failure;
use crate::services::method::{ReplyFuture, result};
use crate::services::service::{Method, Service};

/// Time that the hub has for its answer that it has read all.
const HUB_PATIENCE: Duration = Duration::from_secs(5);
/// An answer is repeated for so many times the time that it took: snapshots take at most a tenth of
/// one core.
const REST: u32 = 9;
/// Calls that wait for their answer; further ones are refused.
const CALLS_MAX: usize = 64;

type Answer = Arc<Map<String, Value>>;

/// The statistics of one node, for those who call it.
struct Inspection {
    node: Weak<Core>,
    url: String,
    /// The last answer, and until when it is repeated. The lock is held while one is made.
    last: sync::Mutex<Option<(Answer, Instant)>>,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Time that the hub took to read all that this node had sent, at the snapshot before.
    round_trip_us: Option<f64>,
    is_hub_asked: bool,
    /// When the probe of the threads of handlers was sent, and when it ran; 0 before that.
    probe: (u64, Arc<AtomicU64>),
}

/// Serves the statistics of a node. A hub that refuses the service is reported to the log.
pub(crate) fn open(node: &Node, url: &str) {
    let core = node.core();
    let state = State { round_trip_us: None, is_hub_asked: false, probe: (1, Arc::new(1.into())) };
    let inspection = Arc::new(Inspection {
        node: Arc::downgrade(core),
        url: url.to_owned(),
        last: sync::Mutex::default(),
        state: Arc::new(Mutex::new(state)),
    });
    let key: String =
        core.name.chars().map(|one| if one.is_ascii_alphanumeric() || one == '-' { one } else { '_' }).collect();
    let service = Service::internal(INSPECTION)
        .description("Statistics of a node that may be looked at (inspect=True).")
        .instance(format!("{key:.48}-{}", std::process::id()))
        .visibility(Visibility::Private)
        .inline()
        .concurrency(CALLS_MAX)
        .waiting(0)
        .with(
            method("about", &[], &inspection, Inspection::about)
                .description("Which node it is: its name, process, URL, versions and age."),
        )
        .with(method("statistics", &[], &inspection, Inspection::statistics).description(
            "Services, durations, the link and the handler threads: the busiest of each, and how many there are.",
        ))
        .with(
            method("rows", &rows::PARAMETERS, &inspection, Inspection::rows)
                .description("Some services: those that have a text, sorted, from the first on."),
        )
        .with(
            method("trace", &["id"], &inspection, Inspection::trace)
                .description("The stored spans of one trace: calls, messages and events of the node."),
        );
    if let Err(error) = node.serve(service).wait() {
        (core.log)(&format!("{INSPECTION}: the statistics of this node cannot be looked at: {error}"));
    }
}

/// A method that answers on a thread of its own: also while handlers hold all threads of the node.
fn method<A: DeserializeOwned + Send + 'static>(
    name: &str,
    parameters: &[&str],
    of: &Arc<Inspection>,
    answer: fn(&Inspection, &Core, A) -> Result<Answer, Failure>,
) -> Method {
    let of = Arc::clone(of);
    let answering = move |arguments: A| {
        let of = Arc::clone(&of);
        let answer = Pending::on_thread("tidewire-inspect", move || {
            let ended = || Error::new(ErrorCode::NoResponders, format!("{INSPECTION}: the node has stopped"));
            of.node.upgrade().ok_or_else(ended).map(|core| answer(&of, &core, arguments))
        });
        let reply: ReplyFuture = Box::pin(async move { result("the result", &*answer.await.map_err(Failure::from)??) });
        Ok(reply)
    };
    Method::answering(name, parameters, answering).result_schema(json!({"type": "object"})).idempotent()
}

impl Inspection {
    fn about(&self, core: &Core, (): ()) -> Result<Answer, Failure> {
        Ok(Arc::new(snapshot::about(core, &self.url)))
    }

    fn rows(&self, core: &Core, query: rows::Query) -> Result<Answer, Failure> {
        Ok(Arc::new(RowQuery::checked(query)?.answer(core)))
    }

    fn trace(&self, core: &Core, (id,): (String,)) -> Result<Answer, Failure> {
        if id.len() != 32 || !id.bytes().all(|one| one.is_ascii_digit() || (b'a'..=b'f').contains(&one)) {
            let text = format!("trace: {id:?} is not allowed: give the id of a trace, 32 hex digits");
            return Err(Failure::of(ErrorCode::InvalidArgument, text));
        }
        let store = core.runner.spans.as_ref();
        let found = store.map_or_else(Vec::new, |store| store.find(&id));
        let rows: Vec<Value> = found.iter().take(ANSWER_SPANS_MAX).map(|span| span.row(&core.name)).collect();
        Ok(Arc::new(snapshot::fields([
            ("node", json!(core.name)),
            ("pid", json!(std::process::id())),
            ("host", json!(snapshot::host_name())),
            ("stores", json!(store.map_or(0, |store| store.most))),
            ("spans_count", json!(found.len())),
            ("spans", Value::Array(rows)),
        ])))
    }

    fn statistics(&self, core: &Core, (): ()) -> Result<Answer, Failure> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let began = clock::now();
        if let Some((last, until)) = &*last
            && began < *until
        {
            return Ok(Arc::clone(last));
        }
        let (mut answer, link) = (snapshot::about(core, &self.url), self.link(core));
        answer.extend(snapshot::statistics(core, &answer, &link));
        let (answer, ended) = (Arc::new(answer), clock::now());
        *last = Some((Arc::clone(&answer), ended + (ended - began) * REST));
        Ok(answer)
    }

    /// The figures of the link to the hub, and of the threads of handlers.
    fn link(&self, core: &Core) -> Map<String, Value> {
        let mut link = Map::new();
        link.insert("lag_us".to_owned(), json!(self.lag_us(core)));
        if core.link.joined().is_some() {
            let (received, sent, credit) = core.link.traffic();
            link.insert("received_bytes".to_owned(), json!(received));
            link.insert("sent_bytes".to_owned(), json!(sent));
            link.insert("credit_bytes".to_owned(), json!(credit));
        }
        link.insert("round_trip_us".to_owned(), json!(self.round_trip_us(core)));
        link
    }

    /// The time that the hub took at the snapshot before; it is asked again.
    fn round_trip_us(&self, core: &Core) -> Option<f64> {
        core.link.joined()?;
        if core.hub.is_some() {
            return Some(0.0);
        }
        let is_asked = std::mem::replace(&mut self.state.lock().is_hub_asked, true);
        if !is_asked {
            let (state, began) = (Arc::clone(&self.state), clock::now());
            let read = core.link.drained(&core.runtime, Some(HUB_PATIENCE));
            core.runtime.spawn(async move {
                let has_read = read.await;
                let mut state = state.lock();
                state.round_trip_us = has_read.then(|| clock::since(began).as_secs_f64() * 1e6);
                state.is_hub_asked = false;
            });
        }
        self.state.lock().round_trip_us
    }

    /// How late the task was that the snapshot before gave to the threads of handlers, or how old
    /// it is if it has not run. They get another one.
    fn lag_us(&self, core: &Core) -> u64 {
        let now_us = core.runner.us_at(clock::now());
        let ran = Arc::<AtomicU64>::default();
        let lag_us = {
            let probe = &mut self.state.lock().probe;
            match probe.1.load(Ordering::Acquire) {
                0 => return now_us.saturating_sub(probe.0),
                ran_us => ran_us.saturating_sub(std::mem::replace(probe, (now_us, Arc::clone(&ran))).0),
            }
        };
        let runner = Arc::downgrade(&core.runner);
        core.runner.run(Box::pin(async move {
            let ran_us = runner.upgrade().map_or(1, |runner| runner.us_at(clock::now()).max(1));
            ran.store(ran_us, Ordering::Release);
        }));
        lag_us
    }
}
