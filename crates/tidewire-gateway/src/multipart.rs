//! `multipart/form-data`: texts and files as arguments by name. A file for a parameter that takes a
//! stream is read while the call runs.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::try_unfold;
use hyper::body::{Body as _, Incoming};
use multer::{Field, Multipart};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::json;
use tidewire_node::values::{self, Value};
use tidewire_node::{ErrorCode, Failure, Feed, MethodInfo};

use crate::problem::Problem;
use crate::request::{BufferedBody, reserve_bytes, too_long};
use crate::schema::NamedArguments;
use crate::shared::Shared;

/// The arguments of a call.
pub(crate) struct Arguments {
    pub values: Value,
    /// The parameter of the file that is read while the call runs, and the file.
    pub upload: Option<(String, Feed)>,
}

impl Serialize for Arguments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (Value::Map(entries), Some((name, feed))) = (&self.values, &self.upload) else {
            return self.values.serialize(serializer);
        };
        let mut map = serializer.serialize_map(Some(entries.len()))?;
        for (key, value) in entries {
            match key {
                Value::Text(text) if text == name => map.serialize_entry(key, feed)?,
                _ => map.serialize_entry(key, value)?,
            }
        }
        map.end()
    }
}

/// Reads the parts of a form, up to a file that is read while the call runs. Such a file is an
/// empty array in the JSON.
pub(crate) async fn form<'a>(
    shared: &'a Shared,
    method: &MethodInfo,
    boundary: String,
    body: Incoming,
) -> Result<(BufferedBody<'a>, Option<(String, Feed)>), Problem> {
    let most = shared.options.limits.body_bytes;
    // One more than may be read: zero is left of a body that is too long.
    let budget = Arc::new(AtomicUsize::new(most + 1));
    let wrong = |error: multer::Error| {
        let is_long = budget.load(Ordering::Relaxed) == 0;
        if is_long { too_long(most) } else { Problem::invalid(format!("multipart: {error}")).last() }
    };
    let mut form = Multipart::new(PartialBody { body, budget: Arc::clone(&budget), has_yielded: false }, boundary);
    let (mut found, mut place, mut held_bytes) = (NamedArguments::new(method), Vec::new(), 0);
    while let Some(mut field) = form.next_field().await.map_err(wrong)? {
        let name = field.name().ok_or_else(|| Problem::invalid("multipart: a part has no name: give one"))?.to_owned();
        if found.is_stream(&name) {
            found.add(&name, |_| json!([]))?;
            budget.store(usize::MAX, Ordering::Relaxed);
            let upload = (name, Feed::new(chunks(form, field)));
            return Ok((BufferedBody { bytes: found.json().into(), _place: place }, Some(upload)));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = field.chunk().await.map_err(wrong)? {
            bytes.extend_from_slice(&chunk);
            let read = most + 1 - budget.load(Ordering::Relaxed);
            place.push(reserve_bytes(shared, read - std::mem::replace(&mut held_bytes, read))?);
        }
        if found.is_bytes(&name) {
            found.add(&name, |_| json!({ "$type": "bytes", "base64": BASE64_STANDARD.encode(&bytes) }))?;
        } else {
            let text = String::from_utf8(bytes).map_err(|_| {
                Problem::invalid(format!("multipart: {name:?} takes no file that is not UTF-8: send text, or JSON"))
            })?;
            found.add_text(&name, &text)?;
        }
    }
    Ok((BufferedBody { bytes: found.json().into(), _place: place }, None))
}

/// The chunks of the last part.
fn chunks(
    form: Multipart<'static>,
    field: Field<'static>,
) -> impl Stream<Item = Result<values::Bytes, Failure>> + Send + 'static {
    let invalid = |text: String| Failure::of(ErrorCode::InvalidArgument, text);
    try_unfold((form, Some(field)), move |(mut form, mut field)| async move {
        let Some(part) = &mut field else { return Ok(None) };
        if let Some(chunk) = part.chunk().await.map_err(|error| invalid(format!("multipart: {error}")))? {
            return Ok(Some((chunk.to_vec().into(), (form, field))));
        }
        drop(field);
        match form.next_field().await {
            Ok(None) => Ok(None),
            Ok(Some(part)) => {
                let name = part.name().unwrap_or_default();
                Err(invalid(format!("multipart: {name:?} follows a part that is a stream: send the stream last")))
            }
            Err(error) => Err(invalid(format!("multipart: {error}"))),
        }
    })
}

/// A body of which so many bytes may be read.
struct PartialBody {
    body: Incoming,
    budget: Arc<AtomicUsize>,
    /// The reader takes frames until there is none: one for each poll bounds what it holds.
    has_yielded: bool,
}

impl Stream for PartialBody {
    type Item = Result<Bytes, &'static str>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if std::mem::take(&mut self.has_yielded) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else { return Poll::Ready(None) };
            let Ok(frame) = frame else { return Poll::Ready(Some(Err("the body did not come whole"))) };
            let Ok(data) = frame.into_data() else { continue };
            let budget = self.budget.load(Ordering::Relaxed);
            if budget == usize::MAX || data.len() < budget {
                self.budget.fetch_sub(if budget == usize::MAX { 0 } else { data.len() }, Ordering::Relaxed);
                self.has_yielded = true;
                return Poll::Ready(Some(Ok(data)));
            }
            self.budget.store(0, Ordering::Relaxed);
            return Poll::Ready(Some(Err("the body is too long")));
        }
    }
}
