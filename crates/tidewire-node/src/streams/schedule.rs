//! Schedules of a stream: messages that its storage backend publishes periodically.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use tidewire_backend::home::{
    Change, HomeError, HomeErrorKind, HomeResult, NewMessage, ScheduleInfo, ScheduleSettings,
};
use tidewire_core::stream::recurrence::Timing;

use super::conventions::{answered, time_of};
use super::message::Message;
use super::stream::Stream;
use super::wire::{self, Wire, wire};
use crate::error::Error;
use crate::pending::Pending;
use crate::values::Bytes;

/// A snapshot of a schedule. Dropping this ends nothing.
#[derive(Clone, derive_more::Debug)]
#[debug("Schedule({:?}, {:?})", self.name(), self.when())]
pub struct Schedule {
    info: ScheduleInfo,
    change: Change,
}

impl Schedule {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.info.settings.name
    }

    /// Its cron expression, or `@every 30s`.
    pub fn when(&self) -> &str {
        self.info.settings.timing.text()
    }

    /// The time zone of its clock.
    pub fn time_zone(&self) -> &str {
        self.info.settings.timing.time_zone()
    }

    /// Where its beats are published.
    pub fn subject(&self) -> &str {
        self.info.settings.message.subject.as_str()
    }

    /// Its next beat.
    pub fn next(&self) -> Option<SystemTime> {
        self.info.next_us.map(time_of)
    }

    /// The change that [`Stream::schedule`] made; `Kept` for a schedule that was only looked up.
    pub const fn change(&self) -> Change {
        self.change
    }
}

/// Messages that the storage backend publishes periodically.
impl Stream {
    /// Publishes a message periodically by the storage backend, also while no program runs. `when`
    /// is a cron expression in UTC, such as `0 22 * * 1-5` or `@daily`, or an interval, such as
    /// `@every 1h30m`. Each beat is an event with the name of the schedule in its header
    /// `Tidewire-Schedule`.
    ///
    /// A program can call this each time it starts: a schedule with the same settings continues
    /// unchanged, a schedule with other settings is replaced.
    ///
    /// # Errors
    /// Awaiting it fails with `invalid_argument` if the name, the expression or the message is not
    /// allowed. It fails with `limit_exceeded` if the stream has its maximum of schedules. It fails
    /// with `unsupported` if the stream refuses messages when full, or its storage backend has no
    /// schedules. It fails with `not_found` if the stream was deleted.
    ///
    /// # Cancel safety
    /// If it is dropped, the schedule may have been made.
    pub fn schedule(&self, name: &str, when: &str, message: Message) -> Pending<Schedule> {
        self.schedule_in(name, when, "UTC", message)
    }

    /// The same, by the clocks of a time zone such as `Europe/Berlin`: a time that they skip has no
    /// beat on that day, one that they show twice has two.
    ///
    /// # Errors
    /// As for [`schedule`](Stream::schedule).
    ///
    /// # Cancel safety
    /// As for [`schedule`](Stream::schedule).
    pub fn schedule_in(&self, name: &str, when: &str, time_zone: &str, message: Message) -> Pending<Schedule> {
        let creation = message.checked().and_then(|message| {
            let timing = Timing::new(when, time_zone).map_err(Error::invalid)?;
            let settings = ScheduleSettings { name: name.to_owned(), timing, message };
            Ok(self.home().create_schedule(self.name(), settings))
        });
        match creation {
            Ok(creation) => Pending::new(async move {
                let (info, change) = creation.await?;
                Ok(Schedule { info, change })
            }),
            Err(error) => Pending::failed(error),
        }
    }

    /// Its schedules, by name.
    ///
    /// # Errors
    /// Awaiting it fails with `not_found` if the stream was deleted.
    pub fn schedules(&self) -> Pending<Vec<Schedule>> {
        let listed = self.home().list_schedules(self.name());
        Pending::new(async move {
            let all = listed.await?.into_iter();
            Ok(all.map(|info| Schedule { info, change: Change::Kept }).collect())
        })
    }

    /// Ends a schedule: no further beat comes. Returns false if there is none of this name.
    ///
    /// # Errors
    /// As for [`schedules`](Stream::schedules).
    ///
    /// # Cancel safety
    /// If it is dropped, the schedule may have ended.
    pub fn cancel_schedule(&self, name: &str) -> Pending<bool> {
        answered(self.home().cancel_schedule(self.name(), name))
    }
}

/// A schedule on the wire.
#[derive(Serialize, Deserialize)]
pub(super) struct ScheduleMap {
    name: String,
    when: String,
    time_zone: String,
    subject: String,
    payload: Bytes,
    key: Option<String>,
    headers: Vec<(String, String)>,
    ttl_us: Option<u64>,
    next_us: Option<u64>,
    change: String,
}

fn map_of(info: &ScheduleInfo, change: Change) -> ScheduleMap {
    let ScheduleSettings { name, timing, message } = info.settings.clone();
    ScheduleMap {
        when: timing.text().to_owned(),
        time_zone: timing.time_zone().to_owned(),
        subject: message.subject.as_str().to_owned(),
        payload: Bytes(message.payload.to_vec()),
        key: message.key,
        headers: message.headers,
        ttl_us: message.ttl_us,
        next_us: info.next_us,
        change: change.name().to_owned(),
        name,
    }
}

impl Wire for (ScheduleInfo, Change) {
    type In = ScheduleMap;

    fn out(&self) -> impl Serialize {
        map_of(&self.0, self.1)
    }

    fn read(map: ScheduleMap) -> HomeResult<Self> {
        let subject = wire::subject("subject", &map.subject)?;
        let mut message = NewMessage::new(subject, map.payload.0);
        (message.key, message.headers, message.ttl_us) = (map.key, map.headers, map.ttl_us);
        let settings = settings(map.name, &map.when, &map.time_zone, message)?;
        let change = [Change::Made, Change::Replaced].into_iter().find(|change| change.name() == map.change);
        Ok((ScheduleInfo { settings, next_us: map.next_us }, change.unwrap_or(Change::Kept)))
    }
}

wire!(ScheduleInfo as ScheduleMap:
    info => map_of(info, Change::Kept),
    map => <(Self, Change)>::read(map).map(|(info, _)| info)
);

pub(super) fn settings(name: String, when: &str, time_zone: &str, message: NewMessage) -> HomeResult<ScheduleSettings> {
    let timing = Timing::new(when, time_zone).map_err(|wrong| HomeError::new(HomeErrorKind::Invalid, wrong))?;
    Ok(ScheduleSettings { name, timing, message })
}
