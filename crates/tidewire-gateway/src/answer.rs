//! HTTP responses: heads, and bodies that are whole or streamed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_core::Stream;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use crate::compression::encode;
use crate::connection::Open;
use crate::problem::{MEDIA_TYPE, Problem};

/// Size of the parts of a long response; each part that the client takes counts as activity.
const PART_BYTES: usize = 64 * 1024;
/// Shorter answers are sent plain, and so are longer ones: the thread of the gateway compresses.
const COMPRESSED_BYTES: std::ops::Range<usize> = 1_000..4 * 1024 * 1024;

pub(crate) type Answer = Response<Body>;

type Parts = Pin<Box<dyn Stream<Item = Bytes> + Send>>;

/// The body of an answer.
pub(crate) struct Body {
    content: Content,
    /// The request is open until its response is sent.
    open: Option<Arc<Open>>,
}

enum Content {
    Whole(Bytes),
    Parts(Parts),
}

impl Body {
    pub fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()), open: None }
    }

    /// The bytes of a body that is whole.
    pub fn bytes(&self) -> Option<&Bytes> {
        if let Content::Whole(bytes) = &self.content { Some(bytes) } else { None }
    }

    pub fn parts(parts: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { content: Content::Parts(Box::pin(parts)), open: None }
    }

    /// Keeps the request open for as long as the body is there.
    pub fn of(&mut self, open: Arc<Open>) {
        open.answers();
        self.open = Some(open);
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(open) = &self.open {
            open.goes_on();
        }
        let part = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => None,
            Content::Whole(bytes) => Some(bytes.split_to(bytes.len().min(PART_BYTES))),
            Content::Parts(parts) => std::task::ready!(parts.as_mut().poll_next(context)),
        };
        Poll::Ready(part.map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.content, Content::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Parts(_) => SizeHint::default(),
        }
    }
}

/// Compresses an answer if its client accepts that and it is text. Streams stay plain: each would
/// hold the memory of an encoder.
pub(crate) fn compressed(request: &HeaderMap, mut answer: Answer) -> Answer {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_text = ["text/", "json", "javascript", "svg"].iter().any(|part| kind.contains(part));
    let bytes = answer.body().bytes().filter(|bytes| is_text && COMPRESSED_BYTES.contains(&bytes.len()));
    if let Some((name, bytes)) = bytes.and_then(|bytes| encode(request, bytes)) {
        answer.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(name));
        *answer.body_mut() = Body::whole(bytes);
    }
    answer
}

/// An answer of this media type.
pub(crate) fn answer(status: StatusCode, media_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

/// A value as JSON.
pub(crate) fn json(bytes: impl Into<Bytes>) -> Answer {
    let mut answer = answer(StatusCode::OK, "application/json", Body::whole(bytes));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Nothing but a status.
pub(crate) fn nothing(status: StatusCode) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = status;
    answer
}

/// The response for a problem.
pub(crate) fn problem(problem: Problem) -> Answer {
    let mut answer = answer(problem.status, MEDIA_TYPE, Body::whole(problem.json().to_string()));
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if problem.retryable() && problem.status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if problem.is_last {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    headers.extend(problem.headers);
    answer
}
