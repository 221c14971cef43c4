//! Schedules of a folder: made, listed, cancelled, and their beats, which become events of their
//! streams.
//!
//! The event of a beat is stored first, and then its record in the journal. A crash between the two
//! leaves the event in the newest segment of its stream, where the next start finds it.

use tidewire_backend::home::{
    Change, Full, HomeError, HomeErrorKind, HomeResult, SCHEDULE_HEADER, ScheduleInfo, ScheduleSettings,
};
use tidewire_core::stream::log::New;
use tidewire_core::stream::record::put_headers;
use tidewire_core::stream::schedule::Schedule;
use tidewire_proto::generated::limits;

use super::errors::invalid;
use super::names::{check_count, check_name};
use super::{Folder, Stream};
use crate::state::Op;

impl Folder {
    /// Creates a schedule, or replaces one of this name with other settings. `wall_us` is the
    /// system time.
    ///
    /// # Errors
    ///
    /// `NotFound`, `Invalid`, `Limit`; `Unsupported` for a stream that refuses when it is full.
    pub fn create_schedule(
        &mut self,
        stream: &str,
        settings: ScheduleSettings,
        wall_us: u64,
    ) -> HomeResult<(ScheduleInfo, Change)> {
        check_name("schedule", &settings.name)?;
        settings.check()?;
        let of = self.stream_mut(stream)?;
        of.refuses(&settings.message)?;
        of.keeps_beats()?;
        let change = match of.schedules.get(&settings.name) {
            Some(schedule) if schedule.what == settings => return Ok((info(schedule), Change::Kept)),
            Some(_) => Change::Replaced,
            None => {
                check_count(&format!("schedules of stream {stream:?}"), of.schedules.len(), &limits::SCHEDULES)?;
                Change::Made
            }
        };
        let op = Op::Schedule(of.number, settings.clone(), (wall_us, wall_us));
        let (name, timing) = (settings.name.clone(), settings.timing.clone());
        let schedule = info(of.schedules.set(&name, timing, settings, (wall_us, wall_us)));
        self.beating.note(stream, schedule.next_us);
        self.keep(&op);
        Ok((schedule, change))
    }

    /// Every schedule of a stream.
    ///
    /// # Errors
    ///
    /// `NotFound`.
    pub fn list_schedules(&self, stream: &str) -> HomeResult<Vec<ScheduleInfo>> {
        Ok(self.stream(stream)?.schedules.iter().map(|(_, schedule)| info(schedule)).collect())
    }

    /// Ends a schedule. False: there was none.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stream.
    pub fn cancel_schedule(&mut self, stream: &str, name: &str) -> HomeResult<bool> {
        let of = self.stream_mut(stream)?;
        if !of.schedules.remove(name) {
            return Ok(false);
        }
        let op = Op::ScheduleGone(of.number, name.to_owned());
        self.keep(&op);
        Ok(true)
    }

    /// Takes the beats that are due into the next group.
    ///
    /// # Errors
    ///
    /// `Disk`.
    pub fn beat(&mut self, now_us: u64, wall_us: u64) -> HomeResult<()> {
        let mut names = Vec::new();
        while let Some(name) = self.beating.take(wall_us) {
            names.push(name);
        }
        for name in &names {
            let id = self.draw();
            let Self { disk, streams, touched, beating, beats, .. } = self;
            // It may have been deleted.
            let Some(stream) = streams.get_mut(name) else { continue };
            for schedule in stream.schedules.due(wall_us) {
                if stream.files.log.group_bytes() == 0 {
                    stream.files.prepare(disk.as_mut(), id, now_us)?;
                }
                stream.beat(&schedule, now_us, wall_us)?;
                touched.insert(name.clone());
                beats.push(Op::Beat(stream.number, schedule, wall_us));
            }
            beating.note(name, stream.schedules.next_us());
        }
        Ok(())
    }
}

impl Stream {
    /// Refuses schedules whose beats a full stream would refuse.
    fn keeps_beats(&self) -> HomeResult<()> {
        let settings = &self.settings;
        let limited = settings.max_bytes.is_some() || settings.max_messages.is_some();
        if !limited || settings.full == Full::DropOld {
            return Ok(());
        }
        let text = format!(
            "schedule: stream {:?} refuses what comes when it is full: make it with full=\"drop_old\" or without limits",
            settings.name
        );
        Err(HomeError::new(HomeErrorKind::Unsupported, text))
    }

    fn beat(&mut self, name: &str, now_us: u64, wall_us: u64) -> HomeResult<()> {
        let Some(schedule) = self.schedules.get(name) else { return Ok(()) };
        let message = &schedule.what.message;
        let mut headers = Vec::new();
        put_headers(&mut headers, &[(SCHEDULE_HEADER.to_owned(), name.to_owned())]);
        put_headers(&mut headers, &message.headers);
        let new = New {
            subject: message.subject.as_str(),
            key: message.key.as_deref(),
            headers: &headers,
            ttl_us: message.ttl_us,
            beat_us: Some(wall_us),
            payload: &message.payload,
            ..New::default()
        };
        self.files.log.append(&new, now_us).map_err(|_full| invalid("a beat is never refused"))?;
        self.schedules.beaten(name, wall_us);
        Ok(())
    }
}

fn info(schedule: &Schedule<ScheduleSettings>) -> ScheduleInfo {
    ScheduleInfo { settings: schedule.what.clone(), next_us: schedule.next_us }
}
