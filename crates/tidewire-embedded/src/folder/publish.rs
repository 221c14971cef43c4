//! Publishing of messages into a stream of a folder.

use tidewire_backend::home::{Ack, Compact, Durability, HomeError, HomeResult, NewMessage};
use tidewire_core::stream::log::{Full, New};
use tidewire_core::stream::record::put_headers;
use tidewire_proto::generated::limits;

use super::errors::invalid;
use super::files::SegmentCursor;
use super::streams::full;
use super::{Folder, Stream};

impl Folder {
    /// Takes messages into the next group. Their acks hold once `commit` has returned.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Disk`. Each message has its own `Full` or `Invalid`; with `whole` one that is
    /// refused refuses all.
    pub fn publish(
        &mut self,
        name: &str,
        messages: &[NewMessage],
        whole: bool,
        now_us: u64,
    ) -> HomeResult<Vec<HomeResult<Ack>>> {
        let id = self.draw();
        let Self { disk, streams, touched, delayed, .. } = self;
        let stream = streams.get_mut(name).ok_or_else(|| super::errors::not_found("stream", name))?;
        if whole && let Some(refused) = messages.iter().find_map(|message| stream.refuses(message).err()) {
            return Ok(messages.iter().map(|_| Err(refused.clone())).collect());
        }
        if whole && let Some(refused) = stream.capacity_error(messages) {
            return Ok(messages.iter().map(|_| Err(refused.clone())).collect());
        }
        if stream.files.log.group_bytes() == 0 {
            stream.files.prepare(disk.as_mut(), id, now_us)?;
        }
        if !touched.contains(name) {
            touched.insert(name.to_owned());
        }
        let mut headers = Vec::new();
        let acks = messages.iter().map(|message| stream.append(message, &mut headers, now_us)).collect();
        delayed.note(name, stream.files.log.next_due_us());
        Ok(acks)
    }

    /// Delivers due delayed messages. True if there were any.
    ///
    /// # Errors
    ///
    /// `Disk`, `Corrupt`.
    pub fn release_due(&mut self, now_us: u64) -> HomeResult<bool> {
        let mut names = Vec::new();
        while let Some(name) = self.delayed.take(now_us) {
            names.push(name);
        }
        let mut released = false;
        for name in &names {
            let id = self.draw();
            let Self { disk, streams, touched, delayed, .. } = self;
            // It may have been deleted.
            let Some(stream) = streams.get_mut(name) else { continue };
            if stream.files.log.due(now_us).is_none() {
                delayed.note(name, stream.files.log.next_due_us());
                continue;
            }
            released = true;
            stream.files.prepare(disk.as_mut(), id, now_us)?;
            touched.insert(name.clone());
            while let Some(origin) = stream.files.log.due(now_us) {
                let mut found = None;
                stream.files.read(disk.as_mut(), &mut SegmentCursor::before(origin), &mut |event, chunk, _| {
                    found = Some(
                        (event.sequence == origin)
                            .then(|| (chunk.clone(), chunk.slice_ref(event.payload), Copied::of(event))),
                    );
                    false
                })?;
                let Some(Some((_, payload, copied))) = found else {
                    return Err(super::errors::corrupt(name, &format!("delayed message {origin} is not there")));
                };
                let new = New { payload: &payload, origin: Some(origin), ..copied.message() };
                stream.files.log.append(&new, now_us).map_err(|_full| invalid("what is due is never refused"))?;
            }
            delayed.note(name, stream.files.log.next_due_us());
        }
        Ok(released)
    }
}

/// Attributes of a delayed message.
struct Copied {
    subject: String,
    key: Option<String>,
    headers: Vec<u8>,
    ttl_us: Option<u64>,
}

impl Copied {
    fn of(event: &tidewire_core::stream::record::Event<'_>) -> Self {
        let due_us = event.due_us.unwrap_or(0);
        Self {
            subject: event.subject.to_owned(),
            key: event.key.map(str::to_owned),
            headers: event.headers.to_owned(),
            ttl_us: event.expires_us.map(|expires| expires.saturating_sub(due_us)),
        }
    }

    /// Without its id, which is that of the delayed message.
    fn message(&self) -> New<'_> {
        New {
            subject: &self.subject,
            key: self.key.as_deref(),
            headers: &self.headers,
            ttl_us: self.ttl_us,
            ..New::default()
        }
    }
}

impl Stream {
    fn append(&mut self, message: &NewMessage, headers: &mut Vec<u8>, now_us: u64) -> HomeResult<Ack> {
        self.refuses(message)?;
        headers.clear();
        put_headers(headers, &message.headers);
        let new = New {
            subject: message.subject.as_str(),
            key: message.key.as_deref(),
            id: message.id.as_deref(),
            headers,
            due_us: message.deliver_at_us.filter(|due| *due > now_us),
            ttl_us: message.ttl_us,
            payload: &message.payload,
            ..New::default()
        };
        let appended = self.files.log.append(&new, now_us).map_err(|limit| self.is_full(limit))?;
        let (sequence, duplicate) = (appended.sequence, appended.duplicate);
        Ok(Ack { sequence, durability: Durability::Disk, duplicate })
    }

    fn is_full(&self, limit: Full) -> HomeError {
        match limit {
            Full::Messages(max) => full(&self.settings.name, "max_messages", max),
            Full::Bytes(max) => full(&self.settings.name, "max_bytes", max),
            Full::Names(max) => full(&self.settings.name, "compact_names", max),
        }
    }

    pub(super) fn refuses(&self, message: &NewMessage) -> HomeResult<()> {
        let subject = &message.subject;
        if !self.settings.subjects.iter().any(|pattern| pattern.matches(subject)) {
            let subjects: Vec<&str> = self.settings.subjects.iter().map(AsRef::as_ref).collect();
            let text = format!(
                "stream {:?}: subject {:?} is none of its own: it takes {subjects:?}",
                self.settings.name,
                subject.as_str()
            );
            return Err(invalid(text));
        }
        if self.settings.compact == Some(Compact::Key) && message.key.is_none() {
            let name = &self.settings.name;
            return Err(invalid(format!("key: it is missing: stream {name:?} keeps the newest of each key; give one")));
        }
        let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let lengths = [
            ("value", message.payload.len(), &limits::EVENT_BYTES),
            ("headers", headers, &limits::EVENT_HEADER_BYTES),
            ("key", message.key.as_ref().map_or(0, String::len), &limits::EVENT_NAME_BYTES),
            ("id", message.id.as_ref().map_or(0, String::len), &limits::EVENT_NAME_BYTES),
        ];
        for (field, length, limit) in lengths {
            if length as u64 > limit.max {
                let text =
                    format!("{field}: it has {length} bytes, more than {} ({}); send less", limit.max, limit.name);
                return Err(invalid(text));
            }
        }
        Ok(())
    }

    /// Why a whole batch does not fit.
    fn capacity_error(&self, messages: &[NewMessage]) -> Option<HomeError> {
        let (log, settings) = (&self.files.log, &self.settings);
        if settings.full == tidewire_backend::home::Full::DropOld {
            return None;
        }
        let bytes: u64 = messages.iter().map(|message| message.payload.len() as u64 + 512).sum();
        let exceeded = |has: u64, max: Option<u64>| max.filter(|max| has > *max);
        if let Some(max) = exceeded(log.messages() + messages.len() as u64, settings.max_messages) {
            return Some(full(&settings.name, "max_messages", max));
        }
        exceeded(log.bytes() + bytes, settings.max_bytes).map(|max| full(&settings.name, "max_bytes", max))
    }
}
