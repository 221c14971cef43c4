//! Stateless reads of a stream, from a position on.

use std::time::Duration;

use serde_json::json;
use tidewire_backend::home::{Event, HomeErrorKind, HomeResult, Page, Read, Start};
use tokio::time::Instant;

use crate::clock;
use crate::consumers::widest;
use crate::cursor::{Cursor, From, Selection, last_of};
use crate::message;
use crate::names;
use crate::pull::{End, Pull, Puller, Wait};
use crate::shared::Shared;
use crate::streams::find;

/// Longest lag of a replica before a retry.
const LAG: Duration = Duration::from_millis(100);

/// A piece of a stream.
pub(crate) async fn read(shared: &Shared, stream: &str, read: Read) -> HomeResult<Page> {
    names::check("stream", stream)?;
    let connection = &shared.connection;
    if read.max_messages == 0 {
        return Err(connection.error(HomeErrorKind::Invalid, "max_messages: 0 reads nothing: write 1 or more"));
    }
    let known = shared.streams.find(connection, stream).await?;
    let wanted = if read.filter.is_empty() && (known.again || known.delays) { &known.subjects } else { &read.filter };
    let filter = widest(wanted).iter().map(ToString::to_string).collect();
    let selection = Selection { stream: stream.to_owned(), filter };
    let until = Instant::now() + clock::span(read.wait_us);
    let patience = Instant::now() + clock::span(read.wait_us).max(connection.settings.request_timeout);
    let (mut last, mut replicated) = newest(shared, stream).await?;
    let mut from = match read.start {
        Start::New => From::Sequence(last + 1),
        Start::All => From::Sequence(1),
        Start::Sequence(sequence) => From::Sequence(sequence.max(1)),
        Start::Time(time_us) => From::Time(time_us),
    };
    loop {
        let mut page = match piece(shared, &selection, &read, from, last, replicated).await {
            Ok(page) => page,
            Err(error) if error.kind() != HomeErrorKind::Unreachable || Instant::now() >= patience => {
                return Err(error);
            }
            Err(_) => {
                Puller::pause(patience).await;
                continue;
            }
        };
        let all_seen = page.next > last;
        if !page.events.is_empty() || !all_seen || page.stopped(&read) {
            return Ok(page.finish(&read, last));
        }
        // A cursor may be on a server that lags behind the leader.
        if replicated && let Some(missing) = lagging(shared, &selection, page.begin, last).await? {
            from = From::Sequence(missing);
            Puller::pause(patience).await;
            continue;
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(page.finish(&read, last));
        }
        from = From::Sequence(page.next);
        wait(shared, &selection, page.next, left).await?;
        (last, replicated) = newest(shared, stream).await?;
        page.events.clear();
    }
}

/// Events read so far, and the next position.
struct ReadBatch {
    begin: u64,
    events: Vec<Event>,
    next: u64,
}

impl ReadBatch {
    fn stopped(&self, read: &Read) -> bool {
        read.stop.is_some_and(|stop| self.next > stop)
    }

    fn finish(mut self, read: &Read, last: u64) -> Page {
        if let Some(stop) = read.stop {
            self.events.retain(|event| event.sequence <= stop);
        }
        let seen = self.events.last().map_or(0, |event| event.sequence);
        Page { events: self.events, next: self.next, last: last.max(seen) }
    }
}

/// Reads the present events, in one pull.
async fn piece(
    shared: &Shared,
    selection: &Selection,
    read: &Read,
    from: From,
    last: u64,
    replicated: bool,
) -> HomeResult<ReadBatch> {
    let connection = &shared.connection;
    let left = match from {
        From::Sequence(sequence) => shared.cursors.take(selection, sequence),
        _ => None,
    };
    let mut cursor = match left {
        Some(cursor) => cursor,
        None => Cursor::open(connection, selection, from).await?,
    };
    let now = Pull { messages: read.max_messages, bytes: read.max_bytes, wait: Wait::No };
    let (mut messages, mut end) = cursor.next(connection, now).await;
    if matches!(end, End::TooLarge) && messages.is_empty() {
        (messages, end) = cursor.next(connection, Pull { messages: 1, bytes: 0, ..now }).await;
    }
    let begin = match from {
        From::Sequence(sequence) => sequence,
        _ => messages.first().map_or(last + 1, |(place, _)| place.sequence),
    };
    let mut next = messages.last().map_or(begin, |(place, _)| place.sequence + 1);
    let events: Vec<_> = messages
        .into_iter()
        .filter(|(_, message)| !names::is_ours(&message.subject))
        .filter_map(|(place, message)| message::event(message, place.sequence, place.time_us))
        .collect();
    // A lagging replica would later return events that count as seen.
    let sure = !replicated || matches!(end, End::Whole);
    match end {
        End::Empty => next = next.max(last + 1),
        End::Away(error) if events.is_empty() => return Err(error),
        End::Gone if events.is_empty() => return Err(connection.away("a cursor was lost")),
        _ => (),
    }
    if let Some(stop) = read.stop
        && next > stop
    {
        cursor.close(connection).await;
        return Ok(ReadBatch { begin, events, next: next.min(stop.saturating_add(1)).max(begin) });
    }
    if sure {
        shared.cursors.leave(cursor, next);
    } else {
        cursor.close(connection).await;
    }
    Ok(ReadBatch { begin, events, next })
}

/// The newest sequence, and whether there are replicas that may lag.
async fn newest(shared: &Shared, stream: &str) -> HomeResult<(u64, bool)> {
    let info = find(&shared.connection, stream).await;
    Ok(last_of(&info.map_err(|failure| failure.of_stream(&shared.connection, stream))?))
}

/// The first event from a place on that the leader has, although a cursor has found none.
async fn lagging(shared: &Shared, selection: &Selection, from: u64, last: u64) -> HomeResult<Option<u64>> {
    let all = [">".to_owned()];
    let filter = if selection.filter.is_empty() { &all[..] } else { &selection.filter };
    for subject in filter {
        let found = shared.stored(&selection.stream, &json!({"seq": from, "next_by_subj": subject})).await?;
        if let Some(stored) = found.filter(|stored| stored.sequence <= last && !names::is_ours(&stored.message.subject))
        {
            return Ok(Some(stored.sequence));
        }
    }
    Ok(None)
}

/// Waits until something may have come. The cursor that sees it has moved behind it, and is not
/// used for reading.
pub(crate) async fn wait(shared: &Shared, selection: &Selection, next: u64, left: Duration) -> HomeResult<()> {
    let connection = &shared.connection;
    let mut cursor = Cursor::open(connection, selection, From::Sequence(next)).await?;
    let one = Pull { messages: 1, bytes: 0, wait: Wait::For(left.max(Duration::from_millis(1))) };
    let (_, end) = cursor.next(connection, one).await;
    if end.is_clean() {
        cursor.close(connection).await;
        return Ok(());
    }
    match end {
        End::Away(error) if error.kind() == HomeErrorKind::Closed => Err(error),
        // The caller looks again, with a new cursor.
        _ => {
            tokio::time::sleep(LAG.min(left)).await;
            Ok(())
        }
    }
}
