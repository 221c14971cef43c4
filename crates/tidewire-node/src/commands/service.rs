//! The service `tidewire-commands`: through it, nodes of all languages start commands at the hub
//! and follow them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as Polling, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidewire_backend::home::{HomeError, HomeErrorKind, HomeResult};
use tidewire_core::stream::command::Stage;

use super::info::{CommandInfo, State, moment_of};
use super::record::{Report, SERVICE, WAIT_US, time_at};
use super::store::{CommandStore, NewCommand, Reported};
use crate::delay::Delay;
use crate::node::runner::Runner;
use crate::node::stop_signal::StopSignal;
use crate::services::context::Context;
use crate::services::failure::Failure;
use crate::services::service::Service;
use crate::streams::opening::Opening;
use crate::streams::{HomeSlot, refused};
use crate::values::{self, Bytes, Value};

/// The store of a storage backend that the first call opens.
type Store = Arc<Opening<Arc<CommandStore>>>;

/// The service of the commands in a storage backend.
pub(crate) fn service(home: &Arc<HomeSlot>, leaving: &Arc<StopSignal>, runner: &Arc<Runner>) -> Service {
    let slot = Arc::clone(home);
    let store: Store = Opening::new(move || {
        let opened = slot.opened();
        Box::pin(async move { Ok(Arc::new(CommandStore::new(opened.await?))) })
    });
    let calls = Calls { store, leaving: Arc::clone(leaving), runner: Arc::clone(runner) };
    let [start, state, progress, info, infos, cancel, retry] = std::array::from_fn(|_| calls.clone());
    Service::new(SERVICE)
        .description("Starts commands at this hub, and follows them.")
        .concurrency(10_000)
        .method("start", &["service", "command", "arguments", "key", "id", "priority"], move |context, request| {
            start.clone().start(context, request)
        })
        .method("state", &["id", "after", "wait_us"], move |_, (id, after, wait_us)| {
            state.clone().state(id, after, wait_us)
        })
        .stream("progress", &["id"], move |_, id| {
            Unfold::new((progress.clone(), ReportPosition::first(id)), |(calls, mut at)| {
                Box::pin(async move { Ok(calls.next_report(&mut at).await?.map(|report| (sent(report), (calls, at)))) })
            })
        })
        .method("info", &["id"], move |_, id: String| {
            let calls = info.clone();
            async move { calls.store().await?.info(&id).await.map_err(refused) }
        })
        .stream("commands", &["service", "command", "stage"], move |_, wanted: Wanted| {
            Unfold::new((infos.clone(), Some(wanted), VecDeque::new()), |(calls, mut wanted, mut found)| {
                Box::pin(async move {
                    if let Some(wanted) = wanted.take() {
                        found = calls.infos(&wanted).await?.into();
                    }
                    Ok(found.pop_front().map(|info| (info, (calls, wanted, found))))
                })
            })
        })
        .method("cancel", &["id"], move |_, id: String| {
            let calls = cancel.clone();
            async move { calls.store().await?.cancel(&id).await.map_err(refused) }
        })
        .method("retry", &["id"], move |_, id: String| {
            let calls = retry.clone();
            async move { calls.store().await?.renew(&id).await.map_err(refused) }
        })
}

type StartArguments = (String, String, Bytes, Option<String>, Option<String>, String);

#[derive(Clone)]
struct Calls {
    store: Store,
    leaving: Arc<StopSignal>,
    runner: Arc<Runner>,
}

impl Calls {
    async fn store(&self) -> Result<Arc<CommandStore>, Failure> {
        self.store.get().await.map_err(refused)
    }

    /// Starts a command, or finds the one with this id; returns its id.
    async fn start(self, context: Context, request: StartArguments) -> Result<String, Failure> {
        let (service, command, arguments, key, id, priority) = request;
        match values::from_bytes(&arguments) {
            Ok(Value::List(parts)) if matches!(*parts, [Value::List(_), Value::Map(_)]) => {}
            _ => {
                let text = "arguments: give a list of a list, those by position, and a map, those by name";
                return Err(refused(HomeError::new(HomeErrorKind::Invalid, text)));
            }
        }
        let caller = context.node().to_owned();
        let trace = context.trace_context().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let new = NewCommand { service, command, arguments: arguments.0, key, id, priority, caller, trace };
        self.store().await?.start(new).await.map_err(refused)
    }

    /// Waits for the record of a command that is newer than a revision, 4 s at most; 0: the answer
    /// comes at once. Returns the revision, true if the command is over, and its outcome.
    async fn state(self, id: String, after: u64, wait_us: u64) -> Result<Option<State>, Failure> {
        let store = self.store().await?;
        let found = if after == 0 {
            store.record(&id).await.map(Some)
        } else {
            self.within(wait_us, store.wait_for(&id, after, |_| true)).await
        };
        let Some((record, revision)) = found.map_err(refused)? else { return Ok(None) };
        Ok(Some((revision, record.is_over(), record.ended())))
    }

    /// The result of a wait; None when its time has passed. A node that stops ends it.
    async fn within<T>(&self, wait_us: u64, wait: impl Future<Output = HomeResult<T>>) -> HomeResult<Option<T>> {
        let mut wait = pin!(wait);
        let delay = Delay::begin(&self.runner, Duration::from_micros(wait_us.min(WAIT_US)));
        let wait = poll_fn(|context| delay.limit(wait.as_mut().poll(context), context).map(Option::transpose));
        self.leaving.until(wait).await
    }

    /// The next report of a command that differs from the one before; None: the command is over.
    async fn next_report(&self, at: &mut ReportPosition) -> Result<Option<Report>, Failure> {
        let store = self.store().await?;
        while !at.is_over {
            let wait = self.within(WAIT_US, store.reported(&at.id, at.after)).await.map_err(refused)?;
            let Some(Reported { report, after, is_over }) = wait else { continue };
            (at.after, at.is_over) = (after, is_over);
            if report.is_some() && report != at.newest {
                at.newest.clone_from(&report);
                return Ok(report);
            }
        }
        Ok(None)
    }

    /// The states of the commands that fit, the oldest first.
    async fn infos(&self, wanted: &Wanted) -> Result<Vec<CommandInfo>, Failure> {
        let (service, command, stage) = wanted;
        let stages = Stage::ALL.map(Stage::name);
        if let Some(stage) = stage.as_ref().filter(|stage| !stages.contains(&stage.as_str())) {
            let text = format!("stage: {stage:?} is not allowed: give {}", stages.join(", "));
            return Err(refused(HomeError::new(HomeErrorKind::Invalid, text)));
        }
        let fits = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let mut infos = self.store().await?.infos().await.map_err(refused)?;
        infos.retain(|info| {
            fits(service, &info.service) && fits(command, &info.command) && fits(stage, info.stage.name())
        });
        Ok(infos)
    }
}

/// A report as its readers receive it.
fn sent((fraction, note, attempt, time_us): Report) -> (f64, String, u32, Value) {
    (fraction, note, attempt, moment_of(time_at(time_us)))
}

/// The service, the command and the stage of the commands in a list.
type Wanted = (Option<String>, Option<String>, Option<String>);

struct ReportPosition {
    id: String,
    after: u64,
    newest: Option<Report>,
    is_over: bool,
}

impl ReportPosition {
    fn first(id: String) -> Self {
        Self { id, after: 0, newest: None, is_over: false }
    }
}

type Step<S, T> = Pin<Box<dyn Future<Output = Result<Option<(T, S)>, Failure>> + Send>>;

/// The items that a function returns one after another, each with the state for the next call.
struct Unfold<S, T, F> {
    next: F,
    state: Option<S>,
    step: Option<Step<S, T>>,
}

impl<S, T, F: FnMut(S) -> Step<S, T>> Unfold<S, T, F> {
    fn new(state: S, next: F) -> Self {
        Self { next, state: Some(state), step: None }
    }
}

impl<S, T, F> Stream for Unfold<S, T, F>
where
    S: Unpin,
    F: FnMut(S) -> Step<S, T> + Unpin,
{
    type Item = Result<T, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Polling<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(state) = this.state.take() {
            this.step = Some((this.next)(state));
        }
        let Some(step) = &mut this.step else { return Poll::Ready(None) };
        let done = std::task::ready!(step.as_mut().poll(context));
        this.step = None;
        Poll::Ready(done.transpose().map(|item| {
            item.map(|(item, state)| {
                this.state = Some(state);
                item
            })
        }))
    }
}
