//! Run of one handler, until it has replied or no caller waits for it.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

use tidewire_engine::raw::{Fire, Watch, clock};
use tidewire_link::{Call, Exchange, PayloadParts, Refused};
use tidewire_proto::generated::errors::ErrorCode;

use crate::discovery::Visibility;
use crate::objects::{ExportScope, Objects};
use crate::services::context::{Context, Inner};
use crate::services::current_service::handling;
use crate::services::failure::Failure;
use crate::services::inbound_call::{Ended, InboundCallState, STOPPED, refuse};
use crate::services::instance::{AdmissionPermit, AdmittedCall, Counts, ServiceInstance};
use crate::services::method::{Method, MethodHandler, ReplyFuture, ReplyStream};
use crate::span::Span;
use crate::values::Blob;
use crate::values::references::within;

/// Time that a caller has to cancel after its deadline.
const LATE: Duration = Duration::from_millis(100);

/// Works at a call. The next one is let in when it is over, or dropped.
pub(crate) async fn run(mut inside: AdmissionPermit, job: AdmittedCall) {
    inside.has_begun = true;
    let instance = &*inside.instance;
    if !inside.is_inline {
        instance.runner.beat();
    }
    Counts::add(&instance.counts.calls);
    let AdmittedCall { call, exchange, method, busy: _busy } = job;
    // A call that has waited may be over.
    if let Some(ended) = exchange.ended() {
        return give_up(instance, call, &exchange, ended).await;
    }
    let context = context(&method, &call, &exchange);
    let span = Span::server(&instance.runner, &context, &method.title, &instance.id);
    let current = CallRun { instance, method: &method, span, begun: instance.begun() };
    let (objects, input) = (instance.objects.upgrade(), call.message.payload());
    // This node takes the references in the arguments.
    let objects = objects.as_ref();
    let span = &current.span;
    match &method.handling {
        MethodHandler::Once(answers) => match span.run(|| begin(instance, objects, || answers(context, input))) {
            Ok(answering) => answer(&current, objects, call, exchange, answering).await,
            Err(failure) => current.fail(call, &failure),
        },
        MethodHandler::Stream(streams) => match span.run(|| begin(instance, objects, || streams(context, input))) {
            Ok(items) => stream(&current, objects, call, exchange, items).await,
            Err(failure) => current.fail(call, &failure),
        },
    }
}

/// A call that is handled, with its span and the time at which its handler began.
struct CallRun<'a> {
    instance: &'a ServiceInstance,
    method: &'a Method,
    span: Span,
    begun: Option<Instant>,
}

impl CallRun<'_> {
    fn reply(&self, call: Call, blob: &mut Blob) {
        self.instance.took(self.method, self.begun, "");
        let flusher = call.flusher();
        // The link reports a reply that cannot be sent to the caller.
        let _ = call.reply(blob.sending());
        flusher.flush();
    }

    fn over(&self, call: Call) {
        Counts::add(&self.instance.counts.streams);
        self.instance.took(self.method, self.begun, "");
        over(call);
    }

    fn fail(&self, call: Call, failure: &Failure) {
        self.span.failed(failure.kind(), failure.message());
        Counts::add(&self.instance.counts.errors);
        self.instance.took(self.method, self.begun, failure.kind());
        let (code, mut blob) = failure.payload();
        let flusher = call.flusher();
        call.fail(code, blob.sending());
        flusher.flush();
    }

    async fn give_up(&self, call: Call, exchange: &Arc<InboundCallState>, ended: Ended) {
        let code = match ended {
            Ended::Gone | Ended::Unread => ErrorCode::CallCancelled,
            Ended::Late => ErrorCode::AskTimeout,
            Ended::Stopping => ErrorCode::NodeStopped,
        };
        self.instance.took(self.method, self.begun, code.name());
        if ended != Ended::Unread {
            self.span.failed(code.name(), "nobody waits for its result");
        }
        give_up(self.instance, call, exchange, ended).await;
    }
}

type Here<'a> = Option<&'a Arc<Objects>>;

async fn answer(
    current: &CallRun<'_>,
    objects: Here<'_>,
    call: Call,
    exchange: Arc<InboundCallState>,
    mut answering: ReplyFuture,
) {
    let instance = current.instance;
    let mut deadline = Deadline::new(instance, &call, &exchange);
    let outcome = poll_fn(|task| {
        if let Poll::Ready(ended) = exchange.poll_ended(task) {
            return Poll::Ready(Err(ended));
        }
        let poll = || Failure::polled(|| answering.as_mut().poll(task));
        let polled = current.span.run(|| within(objects, || handling(instance, poll)));
        if polled.is_pending() {
            deadline.watch();
        }
        polled.map(Ok)
    })
    .await;
    drop(answering);
    match outcome {
        Ok(Ok(mut blob)) => match give_back(objects, &call, &mut blob) {
            Ok(_given) => current.reply(call, &mut blob),
            Err(failure) => current.fail(call, &failure),
        },
        Ok(Err(failure)) => current.fail(call, &failure),
        Err(ended) => current.give_up(call, &exchange, ended).await,
    }
}

async fn stream(
    current: &CallRun<'_>,
    objects: Here<'_>,
    call: Call,
    exchange: Arc<InboundCallState>,
    mut items: ReplyStream,
) {
    let (instance, span) = (current.instance, &current.span);
    let (mut deadline, flusher) = (Deadline::new(instance, &call, &exchange), call.flusher());
    deadline.watch();
    loop {
        let next =
            poll_fn(|task| span.run(|| within(objects, || handling(instance, || next(&exchange, &mut items, task)))));
        let next = next.await;
        match next {
            Ok(Some(Ok(mut blob))) => {
                exchange.spend();
                let _given = match give_back(objects, &call, &mut blob) {
                    Ok(given) => given,
                    Err(failure) => return current.fail(call, &failure),
                };
                if let Err(ended) = poll_fn(|task| poll_capacity(&exchange, &call, blob.bytes(), task)).await {
                    drop(items);
                    return current.give_up(call, &exchange, ended).await;
                }
                match call.item(blob.sending()) {
                    Ok(()) => flusher.flush(),
                    Err(Refused::Over) => return current.give_up(call, &exchange, Ended::Gone).await,
                    Err(refused) => return current.fail(call, &unsent(&refused)),
                }
            }
            Ok(Some(Err(failure))) => return current.fail(call, &failure),
            Ok(None) => return current.over(call),
            Err(ended) => {
                // The stream releases its resources before its reader receives the end.
                drop(items);
                return current.give_up(call, &exchange, ended).await;
            }
        }
    }
}

type Next = Option<Result<Blob, Failure>>;

/// The next item, once its reader takes one.
fn next(exchange: &InboundCallState, items: &mut ReplyStream, task: &mut TaskContext<'_>) -> Poll<Result<Next, Ended>> {
    if let Poll::Ready(ended) = exchange.poll_ended(task) {
        return Poll::Ready(Err(ended));
    }
    if exchange.poll_credit(task).is_pending() {
        return Poll::Pending;
    }
    match catch_unwind(AssertUnwindSafe(|| items.as_mut().poll_next(task))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Ok(Some(Err(Failure::of_panic(&*panic))))),
    }
}

/// Ready when the link takes an item of so many bytes.
fn poll_capacity(
    exchange: &Arc<InboundCallState>,
    call: &Call,
    bytes: usize,
    task: &TaskContext<'_>,
) -> Poll<Result<(), Ended>> {
    if let Poll::Ready(ended) = exchange.poll_ended(task) {
        return Poll::Ready(Err(ended));
    }
    let waiter: Arc<dyn Exchange> = Arc::clone(exchange) as _;
    if call.may_send_item(bytes, &waiter) { Poll::Ready(Ok(())) } else { Poll::Pending }
}

fn begin<T>(
    instance: &ServiceInstance,
    objects: Here<'_>,
    begin: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    within(objects, || handling(instance, || Failure::caught(begin)))
}

/// Exports the references in a reply. The scope lives until the reply is sent.
fn give_back(objects: Here<'_>, call: &Call, blob: &mut Blob) -> Result<ExportScope, Failure> {
    match objects {
        Some(objects) if !blob.offered.is_empty() => Ok(objects.give_back(&call.from.name, blob)?),
        _ => Ok(ExportScope::default()),
    }
}

fn context(method: &Method, call: &Call, exchange: &Arc<InboundCallState>) -> Context {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let headers: BTreeMap<_, _> =
        call.head().fields.iter().map(|(name, value)| (name.to_owned(), text(value))).collect();
    Context::new(Inner {
        service: Arc::clone(&method.service),
        method: Arc::clone(&method.name),
        from: call.from.clone(),
        deadline: call.deadline,
        headers,
        lane: call.message.flags.lane(),
        exchange: Arc::clone(exchange),
        trace: OnceLock::new(),
        origin: Visibility::Private,
        user: None,
    })
}

fn over(call: Call) {
    let flusher = call.flusher();
    call.over();
    flusher.flush();
}

fn unsent(refused: &Refused) -> Failure {
    let code =
        if matches!(refused, Refused::TooLong { .. }) { ErrorCode::PayloadTooLarge } else { ErrorCode::LimitExceeded };
    Failure::refusal(code, format!("an item can't be sent: {refused}"))
}

async fn give_up(instance: &ServiceInstance, call: Call, exchange: &Arc<InboundCallState>, ended: Ended) {
    Counts::add(&instance.counts.cancelled);
    match ended {
        Ended::Gone => refuse(call, ErrorCode::CallCancelled, "the caller has gone"),
        Ended::Unread => over(call),
        Ended::Late => late(instance, call, exchange).await,
        Ended::Stopping => refuse(call, ErrorCode::NodeStopped, STOPPED),
    }
}

/// The caller's own clock reaches the deadline at about the same time. The caller knows best how
/// the call went, and cancels it: only a caller that does not cancel gets this error.
async fn late(instance: &ServiceInstance, call: Call, exchange: &Arc<InboundCallState>) {
    let until = clock::now() + LATE;
    let _watch = instance.runner.watch(until, Arc::clone(exchange) as Arc<dyn Fire>);
    if !poll_fn(|task| exchange.poll_gone(until, task)).await {
        refuse(call, ErrorCode::AskTimeout, "its deadline passed while the handler was at work");
    }
}

/// Ends a handler at the deadline of its call. It is watched only once the handler waits for
/// something.
struct Deadline<'a> {
    instance: &'a ServiceInstance,
    at: Option<Instant>,
    exchange: &'a Arc<InboundCallState>,
    watch: Option<Watch>,
}

impl<'a> Deadline<'a> {
    fn new(instance: &'a ServiceInstance, call: &Call, exchange: &'a Arc<InboundCallState>) -> Self {
        Self { instance, at: call.deadline, exchange, watch: None }
    }

    fn watch(&mut self) {
        if let (Some(at), None) = (self.at, &self.watch) {
            self.watch = Some(self.instance.runner.watch(at, Arc::clone(self.exchange) as Arc<dyn Fire>));
        }
    }
}
