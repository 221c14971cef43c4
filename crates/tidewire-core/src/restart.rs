//! The restart limit: so many restarts in a window of time, so that an actor which fails at once
//! after each of them is stopped.

use std::collections::VecDeque;

/// At most so many restarts within any window of time.
///
/// A restart leaves the window when it is `window_us` old. It keeps one time for each restart
/// within the window, at most `max_restarts` in all.
///
/// ```
/// use tidewire_core::restart::RestartWindow;
///
/// let mut window = RestartWindow::new(2, 1_000_000);
/// assert!(window.allow(0));
/// assert!(window.allow(400_000));
/// assert!(!window.allow(999_999), "a third within a second");
/// assert!(window.allow(1_000_000), "the first has left the window");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartWindow {
    max_restarts: u32,
    window_us: u64,
    /// The times of the restarts, oldest first, without those that had left the window at the last
    /// call.
    restarts: VecDeque<u64>,
}

impl RestartWindow {
    /// A window without restarts. With `max_restarts` 0 none is ever allowed, with `window_us` 0
    /// (and one or more) every one.
    pub fn new(max_restarts: u32, window_us: u64) -> Self {
        Self { max_restarts, window_us, restarts: VecDeque::new() }
    }

    /// Tells whether a restart at `now_us` is allowed, and counts it if so.
    ///
    /// Time must not run backwards; a time before the last one counts as the last one.
    pub fn allow(&mut self, now_us: u64) -> bool {
        let now_us = self.restarts.back().map_or(now_us, |&last| last.max(now_us));
        self.forget_before(now_us);
        if self.restarts.len() >= self.max_restarts as usize {
            return false;
        }
        self.restarts.push_back(now_us);
        true
    }

    /// How many restarts lie within the window that ends at `now_us`.
    pub fn count(&self, now_us: u64) -> usize {
        self.restarts.iter().filter(|&&restart| self.is_inside(restart, now_us)).count()
    }

    /// Forgets all restarts.
    pub fn reset(&mut self) {
        self.restarts.clear();
    }

    fn forget_before(&mut self, now_us: u64) {
        while let Some(&oldest) = self.restarts.front()
            && !self.is_inside(oldest, now_us)
        {
            self.restarts.pop_front();
        }
    }

    fn is_inside(&self, restart_us: u64, now_us: u64) -> bool {
        now_us.saturating_sub(restart_us) < self.window_us
    }
}
