//! Reading a socket that nothing lies on: long payloads go straight to where they are put together.

use std::io;
use std::sync::Arc;

use tidewire_core::link::session::{Event, Fault};
use tidewire_proto::wire::WireError;

use super::{Shared, State, Waiting};
use crate::clock::now_us;
use crate::plain::Plain;
use crate::reading::{Filled, READ_BYTES, Reading};

/// What has been read at one go.
struct Come {
    events: Vec<Event<Arc<dyn Waiting>>>,
    bytes: usize,
    fault: Result<(), Fault>,
}

impl Shared {
    /// Reads until there is nothing more, or so much has come that others have their turn; and hands on what came.
    pub(super) fn read_plain(self: &Arc<Self>, plain: &Plain, reading: &mut Reading) -> Result<Filled, Fault> {
        let mut come = Come { events: Vec::new(), bytes: 0, fault: Ok(()) };
        let (mut filled, epoch, due_us);
        {
            let mut state = self.state.lock();
            epoch = state.epoch;
            loop {
                filled = come.read(&mut state, plain, reading);
                if !matches!(filled, Ok(Filled::Some)) || come.bytes >= READ_BYTES || come.fault.is_err() {
                    break;
                }
            }
            due_us = state.session.next_us();
        }
        self.take_in(come.events, epoch, due_us);
        if let Err(fault) = come.fault {
            self.refuse(&fault);
            return Err(fault);
        }
        match filled {
            Ok(Filled::Closed) => Err(super::gone()),
            Ok(filled) => Ok(filled),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Filled::All),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Filled::Some),
            Err(_) => Err(super::gone()),
        }
    }
}

impl Come {
    /// Reads once.
    fn read(&mut self, state: &mut State, plain: &Plain, reading: &mut Reading) -> io::Result<Filled> {
        let filled = match self.read_chunk(state, plain, reading) {
            Some(filled) => filled?,
            None if state.session.coming_bytes() > 0 => reading.fill_between(|room| plain.try_read(room))?,
            None => reading.fill(|room| plain.try_read(room))?,
        };
        let (now, session) = (now_us(), &mut state.session);
        self.bytes += reading.waiting();
        let garbled = reading.frames_and_begun(|frame| {
            if self.fault.is_ok() {
                self.fault = session.received(frame, now, &mut self.events);
            }
        });
        self.note(garbled);
        Ok(filled)
    }

    /// Reads the rest of a chunk to where it belongs, and a little of what follows. None: it is no chunk that comes next, or one of
    /// a payload that nobody awaits.
    fn read_chunk(&mut self, state: &mut State, plain: &Plain, reading: &mut Reading) -> Option<io::Result<Filled>> {
        let mut chunk = reading.begun()?;
        let mut filled = Filled::All;
        let read = state.session.fill(&chunk, |room| {
            let (count, all) = reading.beside(room, |places| plain.try_read_to(places))?;
            filled = all;
            Ok(count)
        })?;
        Some(read.map(|count| {
            if count > 0 {
                self.bytes += count;
                let taken = state.session.filled(&mut chunk, count, now_us(), &mut self.events);
                reading.came(chunk);
                if self.fault.is_ok() {
                    self.fault = taken;
                }
            }
            filled
        }))
    }

    fn note(&mut self, garbled: Result<(), WireError>) {
        if let (Err(error), Ok(())) = (garbled, &self.fault) {
            self.fault = Err(error.into());
        }
    }
}
