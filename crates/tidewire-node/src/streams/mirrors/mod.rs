//! Mirrors of streams: copies of the streams of other hubs, each event once and in order.
//!
//! - [`source_stream`]: the stream of one hub, as another hub reads it.
//! - [`mirror_stream`]: the mirror at the other hub, as it is written.
//! - [`mirror_writer`]: appends to the mirrors of a storage backend, one after the other.
//! - [`mirror_record`]: the positions of a mirror in its sources, which survive each process.

mod mirror_record;
mod mirror_stream;
mod mirror_writer;
mod source_stream;

use std::sync::Arc;

pub(crate) use mirror_stream::MirrorStream;
pub(crate) use source_stream::SourceStream;

use tidewire_proto::subject::grammar::{MIRROR, SOURCE};

use self::mirror_writer::MirrorWriter;
use super::opening::HomeSlot;
use super::service::with_home;
use crate::node::stop_signal::StopSignal;
use crate::services::service::Method;

/// The header with the place that an event has in the source of its mirror: `hub:stream:sequence`.
const PLACE: &str = "tw-source";
/// The header with the id of an event, in a mirror whose ids are those of places.
const FIRST_ID: &str = "tw-id";

/// The methods of a storage backend for other hubs: one for each stream that may be read, and one
/// for each mirror that may be written.
pub(super) fn methods(home: &Arc<HomeSlot>, leaving: &Arc<StopSignal>) -> [Method; 2] {
    let (slots, leavings) = ([(); 2].map(|()| Arc::clone(home)), [(); 2].map(|()| Arc::clone(leaving)));
    let ([read, written], [ends, other_ends]) = (slots, leavings);
    let writer = Arc::<MirrorWriter>::default();
    [
        Method::scoped(SOURCE, &["start", "max_messages", "max_bytes", "wait_us"], move |_, stream, arguments| {
            with_home(&read, &ends, source_stream::read(stream.to_owned(), arguments))
        }),
        Method::scoped(MIRROR, &["hubs", "source", "after", "page", "info"], move |context, stream, arguments| {
            with_home(&written, &other_ends, writer.append(context, stream.to_owned(), arguments)?)
        }),
    ]
}
