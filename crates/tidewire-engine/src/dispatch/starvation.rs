//! Starvation: all threads of a dispatcher are in handlers, and other actors wait for one.

use std::collections::BTreeMap;
use std::fmt;

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
