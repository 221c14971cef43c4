//! The flush rule of a link: frames are written at once, or wait for others so that they make one
//! write.

use tidewire_proto::generated::limits;

/// How much makes one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Most bytes of one write, as [`write_bytes`](Self::write_bytes) counts them.
    pub bytes: usize,
    /// Frames that are written although others might follow.
    pub frames: usize,
    /// How long a frame may wait for others, in microseconds.
    pub linger_us: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: limits::LINK_BATCH_BYTES.default as usize,
            frames: limits::LINK_BATCH_FRAMES.default as usize,
            linger_us: limits::LINK_LINGER_US.default,
        }
    }
}

impl Batch {
    /// Most bytes of one write, including the headers of chunks: as many chunks as their payloads
    /// fill make one write.
    pub fn write_bytes(&self) -> usize {
        self.bytes + self.bytes / 64
    }
}

/// Since when something waits to be written.
#[derive(Debug, Default)]
pub struct FlushTimer {
    until_us: Option<u64>,
}

/// The queued frames that wait to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueuedBytes {
    /// Bytes.
    pub bytes: usize,
    /// Frames.
    pub frames: usize,
    /// Some of it is in the highest lane.
    pub urgent: bool,
}

impl FlushTimer {
    /// True if the queued frames shall wait for more.
    pub fn holds(&mut self, batch: &Batch, waiting: QueuedBytes, now_us: u64) -> bool {
        let enough = waiting.urgent || waiting.bytes >= batch.bytes || waiting.frames >= batch.frames;
        if batch.linger_us == 0 || enough || waiting.bytes == 0 {
            self.until_us = None;
            return false;
        }
        let until = *self.until_us.get_or_insert(now_us.saturating_add(batch.linger_us));
        if now_us >= until {
            self.until_us = None;
        }
        self.until_us.is_some()
    }

    /// When what waits is written at the latest.
    pub fn until_us(&self) -> u64 {
        self.until_us.unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCH: Batch = Batch { bytes: 1_000, frames: 3, linger_us: 50 };

    fn frames(frames: usize) -> QueuedBytes {
        QueuedBytes { bytes: frames * 100, frames, urgent: false }
    }

    #[test]
    fn a_frame_waits_for_others_and_not_longer_than_it_may() {
        let mut gathering = FlushTimer::default();
        assert!(gathering.holds(&BATCH, frames(1), 10));
        assert_eq!(gathering.until_us(), 60);
        assert!(gathering.holds(&BATCH, frames(2), 59), "a later one does not make it wait longer");
        assert!(!gathering.holds(&BATCH, frames(2), 60));
        assert!(gathering.holds(&BATCH, frames(1), 70), "the next one waits anew");
        assert_eq!(gathering.until_us(), 120);
    }

    #[test]
    fn enough_and_urgent_frames_do_not_wait() {
        let at_once = [
            frames(3),
            QueuedBytes { bytes: 1_000, ..frames(1) },
            QueuedBytes { urgent: true, ..frames(1) },
            frames(0),
        ];
        for waiting in at_once {
            let mut gathering = FlushTimer::default();
            assert!(!gathering.holds(&BATCH, waiting, 0), "{waiting:?}");
            assert_eq!(gathering.until_us(), u64::MAX);
        }
        assert!(!FlushTimer::default().holds(&Batch::default(), frames(1), 0), "nothing waits when nothing is said");
    }
}
