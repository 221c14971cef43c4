//! Starvation: all threads of a dispatcher are in handlers, and other actors wait for one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use crate::core::Core;
use crate::dispatch::{Dispatcher, DispatcherKind, Pool};

/// Most handlers that a text names.
const NAMED_MAX: usize = 4;

/// A dispatcher without a free thread.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Starvation {
    /// Name of the dispatcher whose threads they are.
    pub dispatcher: Box<str>,
    /// The actors whose handlers hold its threads, and how many threads each group holds. Children
    /// of a named actor without names of their own count as that actor.
    pub held_by: BTreeMap<String, usize>,
    /// The configuration key that allows more threads.
    pub setting: &'static str,
    /// The value of that key in force.
    pub value: usize,
}

impl Starvation {
    /// How many threads the dispatcher has.
    pub fn threads(&self) -> usize {
        self.held_by.values().sum()
    }

    fn of(core: &Core, pool: &Pool) -> Option<Self> {
        let held = pool.held()?;
        let mut held_by = BTreeMap::new();
        for id in &held.actors {
            let cell = core.find(*id);
            let parent = cell.as_ref().filter(|cell| cell.name().is_none()).and_then(|cell| cell.parent());
            let named = parent.filter(|parent| parent.name().is_some());
            *held_by.entry(core.title(named.map_or(*id, |parent| parent.id()))).or_default() += 1;
        }
        let options = &pool.options;
        // Spare threads replace only those that wait through the engine. The handler that reports
        // this has just ended its wait.
        let spare = held.blocked > 0 && held.blocked + 1 >= options.spare_threads;
        let (setting, value) =
            if spare { ("spare_threads", options.spare_threads) } else { ("threads", options.threads) };
        let name = options.name.strip_prefix("tidewire-").unwrap_or(&options.name);
        Some(Self { dispatcher: name.into(), held_by, setting, value })
    }
}

impl fmt::Display for Starvation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dispatcher, held_by, setting, value } = self;
        let threads = self.threads();
        let mut most: Vec<_> = held_by.iter().collect();
        most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let name = |(title, count): &(&String, &usize)| match count {
            1 => title.to_string(),
            _ => format!("{title} ({count} threads)"),
        };
        let mut names: Vec<_> = most.iter().take(NAMED_MAX).map(name).collect();
        if most.len() > NAMED_MAX {
            names.push(format!("{} more", most.len() - NAMED_MAX));
        }
        write!(
            f,
            "dispatcher '{dispatcher}' has no free thread, handlers hold all {threads}: {}. \
             Let these handlers await instead of block, or raise dispatchers.{dispatcher}.{setting} (now {value})",
            names.join(", ")
        )
    }
}

/// The starvation of a dispatcher now, or the last one that was seen at `since` or later. An ask
/// that ends late may be rendered after the first of the handlers went on.
pub(crate) fn of_dispatcher(core: &Core, dispatcher: &Dispatcher, since: Option<Instant>) -> Option<Starvation> {
    let DispatcherKind::Threads(pool) = &dispatcher.place else { return None };
    match Starvation::of(core, pool) {
        Some(now) => {
            *pool.last_starved.lock() = Some((Instant::now(), now.clone()));
            Some(now)
        }
        None => {
            let last = pool.last_starved.lock();
            last.as_ref().filter(|(at, _)| since.is_some_and(|since| *at >= since)).map(|(_, seen)| seen.clone())
        }
    }
}
