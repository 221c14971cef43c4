//! Watches of services: instances that join and leave.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::discovery::InstanceInfo;
use crate::discovery::lookup::listed;
use crate::error::Error;
use crate::names;
use crate::node::core::Core;
use crate::pending::wait;

/// An instance of a service that came or went.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InstanceChange {
    /// True if the instance joined. An instance that returns with another version or other metadata
    /// has left and joined.
    pub has_joined: bool,
    /// The name of the service.
    pub service: String,
    /// The instance, as it describes itself.
    pub instance: InstanceInfo,
}

/// The current instances of one service, or of all, and then joins and departures; made by
/// [`Node::watch_services`](crate::Node::watch_services). A slow reader gets the difference to its
/// last state, so that nothing queues up. While the link is lost, no instance is known.
#[derive(derive_more::Debug)]
#[must_use = "nothing is watched before it is asked for a change"]
#[debug("ServiceChanges of {:?}", self.core.name)]
pub struct ServiceChanges {
    core: Arc<Core>,
    service: Option<String>,
    problem: Option<Error>,
    known: BTreeMap<(String, String), InstanceInfo>,
    changes: VecDeque<InstanceChange>,
    /// Change count of the directory at the last refresh.
    count: Option<u64>,
}

impl ServiceChanges {
    pub(crate) fn new(core: &Arc<Core>, service: Option<&str>) -> Self {
        let problem = service.and_then(|service| names::token("service", service).err());
        let (known, changes) = (BTreeMap::new(), VecDeque::new());
        Self { core: Arc::clone(core), service: service.map(str::to_owned), problem, known, changes, count: None }
    }

    /// Waits for the next change. None: the node has stopped.
    ///
    /// # Errors
    /// `invalid_argument` if the name is none of a service, `unauthorized` if the token does not
    /// allow it. A link that is lost is waited for.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<Result<InstanceChange, Error>> {
        if let Some(problem) = self.problem.take() {
            return Some(Err(problem));
        }
        loop {
            if let Some(change) = self.changes.pop_front() {
                return Some(Ok(change));
            }
            if let Some(count) = self.count {
                self.core.directory.changed_since(count).await;
            }
            if self.core.check().is_err() {
                return None;
            }
            // Read first: changes in the meantime cause another refresh.
            self.count = Some(self.core.directory.changes());
            match self.refresh().await {
                Ok(()) => {}
                Err(error) if error.is_retryable() => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// Blocks this thread until something has changed.
    ///
    /// # Errors
    /// As for [`next`](ServiceChanges::next).
    pub fn next_blocking(&mut self) -> Option<Result<InstanceChange, Error>> {
        wait(self.next())
    }

    /// Compares the directory with the last refresh, and queues the differences.
    async fn refresh(&mut self) -> Result<(), Error> {
        self.core.directory.follow(&self.core).await?;
        let mut current = BTreeMap::new();
        for info in listed(&self.core).await? {
            if self.service.as_ref().is_none_or(|service| *service == info.name) {
                current.extend(info.details.into_iter().map(|detail| ((info.name.clone(), detail.id.clone()), detail)));
            }
        }
        let known = std::mem::replace(&mut self.known, current);
        for (has_joined, some, others) in [(false, &known, &self.known), (true, &self.known, &known)] {
            let differing = some.iter().filter(|(key, instance)| others.get(*key) != Some(*instance));
            self.changes.extend(differing.map(|((service, _), instance)| InstanceChange {
                has_joined,
                service: service.clone(),
                instance: instance.clone(),
            }));
        }
        Ok(())
    }
}
