//! Direct read of a socket without layers: long payloads go straight to their receive buffers.

use std::io;
use std::sync::Arc;

use tidewire_core::link::session::Fault;

use super::Shared;
use super::receive::ReceiveBatch;
use crate::frame_reader::{FrameReader, READ_BYTES, ReadProgress};
use crate::socket::raw_stream::RawStream;

/// Bytes that are inflated in one step, before other work has its turn. One chunk may still inflate
/// to more.
const INFLATED_BYTES: usize = 1 << 20;

/// One read step of the socket by a waiting thread or loop.
struct DirectRead<'a> {
    hearing: ReceiveBatch<'a>,
    bytes: usize,
}

impl Shared {
    /// Reads until the socket is empty or the limit for one turn is reached, and dispatches the
    /// received frames.
    pub(super) fn read_plain(
        self: &Arc<Self>,
        plain: &RawStream,
        reading: &mut FrameReader,
    ) -> Result<ReadProgress, Fault> {
        let mut come = DirectRead { hearing: ReceiveBatch::of(self), bytes: 0 };
        let filled = loop {
            let filled = come.read(plain, reading);
            if !matches!(filled, Ok(ReadProgress::Some)) || come.is_enough() {
                break filled;
            }
        };
        self.take_in(come.hearing.end())?;
        match filled {
            Ok(ReadProgress::Closed) => Err(super::connection_closed()),
            Ok(filled) => Ok(filled),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadProgress::All),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReadProgress::Some),
            Err(_) => Err(super::connection_closed()),
        }
    }
}

impl DirectRead<'_> {
    fn is_enough(&self) -> bool {
        self.bytes >= READ_BYTES || self.hearing.inflated_bytes() >= INFLATED_BYTES || self.hearing.is_over()
    }

    /// Reads once.
    fn read(&mut self, plain: &RawStream, reading: &mut FrameReader) -> io::Result<ReadProgress> {
        let filled = match self.read_chunk(plain, reading) {
            Some(filled) => filled?,
            None if self.hearing.session().awaits_chunks() => reading.fill_between(|spare| plain.try_read(spare))?,
            None => reading.fill(|spare| plain.try_read(spare))?,
        };
        self.hearing.goes_on();
        self.bytes += reading.waiting();
        let read = reading.frames_and_begun(|frame| self.hearing.received(frame));
        self.hearing.garbled(read);
        Ok(filled)
    }

    /// Reads the rest of a chunk to where it belongs, and a little of what follows. None: it is no
    /// chunk that comes next, or one of a payload that nobody awaits.
    fn read_chunk(&mut self, plain: &RawStream, reading: &mut FrameReader) -> Option<io::Result<ReadProgress>> {
        let mut chunk = reading.begun()?;
        let mut filled = ReadProgress::All;
        let read = self.hearing.session().fill(&chunk, |spare| {
            let (count, all) = reading.beside(spare, |places| plain.try_read_to(places))?;
            filled = all;
            Ok(count)
        })?;
        Some(read.map(|count| {
            if count > 0 {
                self.bytes += count;
                self.hearing.goes_on();
                self.hearing.filled(&mut chunk, count);
                reading.set_begun(chunk);
            }
            filled
        }))
    }
}
