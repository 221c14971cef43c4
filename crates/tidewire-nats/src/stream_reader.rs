//! Stateless reads of a stream, from a position on.

use std::time::Duration;

use serde_json::json;
use tidewire_backend::home::{Event, HomeErrorKind, HomeResult, Page, Read, Start};
use tokio::time::Instant;

use crate::clock;
use crate::consumers::widest;
use crate::cursor::{Cursor, From, Selection};
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
    let patterns = if read.filter.is_empty() && (known.again || known.delays) { &known.subjects } else { &read.filter };
    let filter = widest(patterns).iter().map(ToString::to_string).collect();
    let selection = Selection { stream: stream.to_owned(), filter };
    let until = Instant::now() + clock::wait(read.wait_us);
    let patience = Instant::now() + clock::wait(read.wait_us).max(connection.settings.request_timeout);
    let mut last = newest(shared, stream).await?;
    let mut from = match read.start {
        Start::New => From::Sequence(last + 1),
        Start::All => From::Sequence(1),
        Start::Sequence(sequence) => From::Sequence(sequence.max(1)),
        Start::Time(time_us) => From::Time(time_us),
    };
    loop {
        let mut batch = match present(shared, &selection, &read, from, last).await {
            Ok(batch) => batch,
            Err(error) if error.kind() != HomeErrorKind::Unreachable || Instant::now() >= patience => {
                return Err(error);
            }
            Err(_) => {
                Puller::pause(patience).await;
                continue;
            }
        };
        if batch.is_empty && batch.next <= last {
            match first_stored(shared, &selection, batch.next, last).await? {
                Some(missing) if Instant::now() < patience => {
                    from = From::Sequence(missing);
                    Puller::pause(patience).await;
                    continue;
                }
                Some(missing) => batch.next = missing,
                None => batch.next = last + 1,
            }
        }
        let stopped = read.stop.is_some_and(|stop| batch.next > stop);
        if stopped {
            batch.cursor.close(connection).await;
        } else {
            shared.cursors.leave(connection, batch.cursor, batch.next).await;
        }
        let left = until.saturating_duration_since(Instant::now());
        if !batch.events.is_empty() || batch.next <= last || stopped || left.is_zero() {
            let seen = batch.events.last().map_or(0, |event| event.sequence);
            let next = read.stop.map_or(batch.next, |stop| batch.next.min(stop.saturating_add(1)));
            return Ok(Page { events: batch.events, next, last: last.max(seen) });
        }
        from = From::Sequence(batch.next);
        wait(shared, &selection, batch.next, left).await?;
        last = newest(shared, stream).await?;
    }
}

/// Events that a cursor had, and the position behind them.
struct Batch {
    events: Vec<Event>,
    next: u64,
    /// True if the cursor reported the end, without any message.
    is_empty: bool,
    cursor: Cursor,
}

/// Reads the present events, in one pull.
async fn present(shared: &Shared, selection: &Selection, read: &Read, from: From, last: u64) -> HomeResult<Batch> {
    let connection = &shared.connection;
    let idle = match from {
        From::Sequence(sequence) => shared.cursors.take(selection, sequence),
        _ => None,
    };
    let mut cursor = match idle {
        Some(cursor) => cursor,
        None => Cursor::open(connection, selection, from).await?,
    };
    let now = Pull { messages: read.max_messages, bytes: read.max_bytes, wait: Wait::No };
    let (mut messages, mut end) = cursor.next(connection, now).await;
    if matches!(end, End::TooLarge) && messages.is_empty() {
        (messages, end) = cursor.next(connection, Pull { messages: 1, bytes: 0, ..now }).await;
    }
    let next = match (messages.last(), from) {
        (Some((place, _)), _) => place.sequence + 1,
        (None, From::Sequence(sequence)) => sequence,
        (None, _) => last + 1,
    };
    let is_empty = messages.is_empty() && matches!(end, End::Empty);
    let mut events: Vec<_> = messages
        .into_iter()
        .filter(|(_, message)| !names::is_ours(&message.subject))
        .filter_map(|(place, message)| message::event(message, place.sequence, place.time_us))
        .collect();
    match end {
        End::Away(error) if events.is_empty() => return Err(error),
        End::Gone if events.is_empty() => return Err(connection.away("a cursor was lost")),
        _ => (),
    }
    let past_stop = read.stop.map_or(u64::MAX, |stop| stop.saturating_add(1));
    events.retain(|event| event.sequence < past_stop);
    Ok(Batch { events, next, is_empty, cursor })
}

/// The newest sequence.
async fn newest(shared: &Shared, stream: &str) -> HomeResult<u64> {
    let info =
        find(&shared.connection, stream).await.map_err(|failure| failure.of_stream(&shared.connection, stream))?;
    Ok(info["state"]["last_seq"].as_u64().unwrap_or_default())
}

/// The first event from a position on that the leader has, although a cursor found none. A replica
/// may lag behind the leader, and a server stores an event before it tells its cursors.
async fn first_stored(shared: &Shared, selection: &Selection, from: u64, last: u64) -> HomeResult<Option<u64>> {
    let all = [">".to_owned()];
    let filter = if selection.filter.is_empty() { &all[..] } else { &selection.filter };
    let mut first = None;
    for subject in filter {
        let found = shared.stored(&selection.stream, &json!({"seq": from, "next_by_subj": subject})).await?;
        if let Some(stored) = found.filter(|stored| stored.sequence <= last) {
            first = Some(first.unwrap_or(u64::MAX).min(stored.sequence));
        }
    }
    Ok(first)
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
