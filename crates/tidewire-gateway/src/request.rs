//! The body of a request: read whole, within its limits.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use tidewire_proto::generated::errors::ErrorCode;

use crate::counts::LimitPermit;
use crate::problem::Problem;
use crate::shared::Shared;

/// A body, and its place among those that are held.
pub(crate) struct BufferedBody<'a> {
    pub bytes: Bytes,
    _place: Vec<LimitPermit<'a>>,
}

/// Reads a body whole.
pub(crate) async fn read(shared: &Shared, body: Incoming) -> Result<BufferedBody<'_>, Problem> {
    let limits = &shared.options.limits;
    let (most, all) = (limits.body_bytes, limits.bodies_bytes);
    if body.size_hint().lower() > most as u64 {
        return Err(too_long(most));
    }
    let time = Duration::from_millis(limits.read_ms);
    match tokio::time::timeout(time, collected(shared, body, most, all)).await {
        Ok(read) => read,
        Err(_) => {
            let text = format!("http_read_ms={}: the body did not come in time", limits.read_ms);
            Err(Problem::new(ErrorCode::AskTimeout, text).with_status(StatusCode::REQUEST_TIMEOUT).last())
        }
    }
}

async fn collected(shared: &Shared, mut body: Incoming, most: usize, all: usize) -> Result<BufferedBody<'_>, Problem> {
    let (mut first, mut more, mut place) = (Bytes::new(), BytesMut::new(), Vec::new());
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|_| Problem::invalid("the body did not come whole").last())?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + more.len() + data.len() > most {
            return Err(too_long(most));
        }
        let taken = LimitPermit::some(&shared.counting.bodies_bytes, data.len(), all).ok_or_else(|| {
            Problem::new(
                ErrorCode::LimitExceeded,
                format!("http_bodies_bytes={all}: too many bodies are held: try again later"),
            )
            .last()
        })?;
        place.push(taken);
        if first.is_empty() && more.is_empty() {
            first = data;
            continue;
        }
        more.extend_from_slice(&std::mem::take(&mut first));
        more.extend_from_slice(&data);
    }
    let bytes = if more.is_empty() { first } else { more.freeze() };
    Ok(BufferedBody { bytes, _place: place })
}

fn too_long(most: usize) -> Problem {
    Problem::new(ErrorCode::PayloadTooLarge, format!("http_body_bytes={most}: the body is longer: send less")).last()
}
