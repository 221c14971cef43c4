//! Streams as answers: server-sent events, or JSON with one value a line.

use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use serde_json::Value as Json;
use tidewire_node::Items;
use tidewire_node::values::Value;
use tidewire_proto::generated::errors::ErrorCode;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::answer::{Answer, Body, answer};
use crate::headers::StreamForm;
use crate::json::write_json;
use crate::problem::Problem;
use crate::shared::Shared;

/// How long an answer waits for its first item, so that a failure at the beginning has a status.
const FIRST: Duration = Duration::from_millis(500);
/// Interval of keep-alive signs on a stream without items.
const BEAT: Duration = Duration::from_secs(15);
/// Items that are written at one go.
const BURST: usize = 64;
/// Bytes after which no further item is written at the same go.
const BURST_BYTES: usize = 64 * 1024;

/// Maximal items of a stream that is returned as an array.
const ITEMS: usize = 1_000;
/// Bytes of them after which no further one is read.
const ITEMS_BYTES: usize = 1024 * 1024;

/// Source of JSON in parts.
pub(crate) trait Source: Send + Unpin + 'static {
    /// Appends the next item as JSON. None: there are no more.
    fn poll_json(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Result<(), Problem>>>;
}

/// The items of a method.
pub(crate) struct OfMethod(Items<Value>);

impl Source for OfMethod {
    fn poll_json(&mut self, context: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<Result<(), Problem>>> {
        let item = std::task::ready!(Pin::new(&mut self.0).poll_next(context));
        Poll::Ready(item.map(|item| item.map(|value| write_json(out, &value)).map_err(Problem::from)))
    }
}

/// The response of a method that returns a stream.
pub(crate) async fn of_method(shared: &Arc<Shared>, items: Items<Value>, form: StreamForm) -> Result<Answer, Problem> {
    begin(shared, OfMethod(items), form, FIRST).await
}

/// Begins an answer. A source that fails before its first item fails the request.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    mut source: impl Source,
    form: StreamForm,
    patience: Duration,
) -> Result<Answer, Problem> {
    let place = StreamPermit::take(shared)?;
    let mut first = Vec::new();
    let mut late = pin!(sleep(patience));
    let start = poll_fn(|context| {
        if let Poll::Ready(item) = source.poll_json(context, &mut first) {
            return Poll::Ready(item);
        }
        late.as_mut().poll(context).map(|()| Some(Ok(())))
    });
    let is_over = match start.await {
        Some(Err(problem)) => return Err(problem),
        Some(Ok(())) => false,
        None => true,
    };
    let mut written = OutputBuffer { out: Vec::with_capacity(256), form, items: 0 };
    if !first.is_empty() {
        written.item(|out| out.append(&mut first));
    }
    if is_over {
        written.end();
    }
    let state = if is_over { State::Over } else { State::Runs };
    let beat = Box::pin(sleep(BEAT));
    let body = Body::parts(Parts { source, written, state, beat, ending: end_of(shared), _place: place });
    let media_type = match form {
        StreamForm::Events | StreamForm::Messages => "text/event-stream",
        StreamForm::Lines => "application/x-ndjson",
    };
    let mut answer = answer(StatusCode::OK, media_type, body);
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Asks proxies to forward parts at once.
    answer.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    Ok(answer)
}

/// Where each item of a stream is reported, with its number and JSON; the next one waits for that.
pub(crate) type Reports<'a> = (&'a mpsc::Sender<Json>, &'a (dyn Fn(usize, &Value, &[u8]) -> Json + Sync));

/// The items of a stream as an array: the first ones, for those who take one answer.
pub(crate) async fn collected(mut items: Items<Value>, to: Option<Reports<'_>>) -> Result<Vec<u8>, Problem> {
    let mut out = vec![b'['];
    for number in 1..=ITEMS {
        let Some(item) = items.next().await else { break };
        if number > 1 {
            out.push(b',');
        }
        let (begin, item) = (out.len(), item?);
        write_json(&mut out, &item);
        if let Some((reports, report)) = to {
            let _ = reports.send(report(number, &item, &out[begin..])).await;
        }
        if out.len() > ITEMS_BYTES {
            break;
        }
    }
    out.push(b']');
    Ok(out)
}

/// A place among the streams that are open.
struct StreamPermit(Arc<Shared>);

impl StreamPermit {
    fn take(shared: &Arc<Shared>) -> Result<Self, Problem> {
        let most = shared.options.limits.streams;
        let more = |open: usize| (open < most).then_some(open + 1);
        match shared.counting.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Self(Arc::clone(shared))),
            Err(_) => {
                let text = format!("http_streams={most}: so many streams are open: try again later");
                Err(Problem::new(ErrorCode::LimitExceeded, text))
            }
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.counting.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the end of the gateway.
type GatewayEnd = Pin<Box<dyn Future<Output = ()> + Send>>;

fn end_of(shared: &Shared) -> GatewayEnd {
    let mut ending = shared.ending.subscribe();
    Box::pin(async move { drop(ending.wait_for(|ends| *ends).await) })
}

enum State {
    Runs,
    /// The end is written, and not taken by the client yet.
    Over,
    Gone,
}

struct Parts<S> {
    source: S,
    written: OutputBuffer,
    state: State,
    beat: Pin<Box<Sleep>>,
    ending: GatewayEnd,
    _place: StreamPermit,
}

impl<S: Source> Stream for Parts<S> {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if let State::Runs = this.state {
            this.gather(context);
        }
        let out = std::mem::take(&mut this.written.out);
        match this.state {
            State::Gone => Poll::Ready(None),
            State::Over => {
                this.state = State::Gone;
                Poll::Ready((!out.is_empty()).then(|| out.into()))
            }
            State::Runs if out.is_empty() => Poll::Pending,
            State::Runs => Poll::Ready(Some(out.into())),
        }
    }
}

impl<S: Source> Parts<S> {
    /// Writes the items that are ready.
    fn gather(&mut self, context: &mut Context<'_>) {
        for _ in 0..BURST {
            let mut wrong = None;
            let before = self.written.out.len();
            let source = &mut self.source;
            let polled = self.written.try_item(|out| match source.poll_json(context, out) {
                Poll::Ready(Some(Ok(()))) => Some(true),
                Poll::Ready(Some(Err(problem))) => {
                    wrong = Some(problem);
                    Some(false)
                }
                Poll::Ready(None) => Some(false),
                Poll::Pending => None,
            });
            match (polled, wrong) {
                (Some(_), Some(problem)) => {
                    self.written.problem(&problem);
                    self.state = State::Over;
                    return;
                }
                (Some(false), None) => {
                    self.written.end();
                    self.state = State::Over;
                    return;
                }
                (Some(true), None) if self.written.out.len() < BURST_BYTES => {}
                (Some(true), None) => return,
                (None, _) => {
                    debug_assert_eq!(before, self.written.out.len(), "nothing is written while nothing comes");
                    return self.wait(context);
                }
            }
        }
        // There may be more, and others have their turn first.
        context.waker().wake_by_ref();
    }

    /// Has itself woken for a sign of life, and at the end of the gateway.
    fn wait(&mut self, context: &mut Context<'_>) {
        if self.ending.as_mut().poll(context).is_ready() {
            let text = "the gateway is stopping: ask again later";
            self.written.problem(&Problem::new(ErrorCode::NodeStopped, text));
            self.state = State::Over;
        } else if self.beat.as_mut().poll(context).is_ready() {
            self.written.beat();
            self.beat.set(sleep(BEAT));
            // It has to be polled once to be woken.
            let _ = self.beat.as_mut().poll(context);
        }
    }
}

/// Encoded output that the client has not taken yet.
struct OutputBuffer {
    out: Vec<u8>,
    form: StreamForm,
    items: u64,
}

impl OutputBuffer {
    fn item(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.try_item(|out| {
            write(out);
            Some(true)
        });
    }

    /// Writes an item, if it comes to that.
    fn try_item(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Option<bool>) -> Option<bool> {
        let before = self.out.len();
        match self.form {
            StreamForm::Events => self.out.extend_from_slice(format!("id: {}\ndata: ", self.items + 1).as_bytes()),
            StreamForm::Messages => self.out.extend_from_slice(b"data: "),
            StreamForm::Lines => {}
        }
        let written = write(&mut self.out);
        if written != Some(true) {
            self.out.truncate(before);
            return written;
        }
        self.items += 1;
        let end: &[u8] = if self.form == StreamForm::Lines { b"\n" } else { b"\n\n" };
        self.out.extend_from_slice(end);
        written
    }

    fn problem(&mut self, problem: &Problem) {
        let mut body = problem.json();
        match self.form {
            StreamForm::Events => self.out.extend_from_slice(format!("event: problem\ndata: {body}\n\n").as_bytes()),
            StreamForm::Lines => {
                if let Some(body) = body.as_object_mut() {
                    body.insert("$type".to_owned(), "problem".into());
                }
                self.out.extend_from_slice(format!("{body}\n").as_bytes());
            }
            StreamForm::Messages => {}
        }
    }

    fn end(&mut self) {
        if self.form == StreamForm::Events {
            self.out.extend_from_slice(b"event: end\ndata: null\n\n");
        }
    }

    fn beat(&mut self) {
        let beat: &[u8] = if self.form == StreamForm::Lines { b"\n" } else { b":\n\n" };
        self.out.extend_from_slice(beat);
    }
}
