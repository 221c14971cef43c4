//! Spawning an actor: its name, its mailbox and its first turn.

use std::sync::Arc;

use tidewire_proto::generated::limits;

use crate::actor::options::{Mailbox, OnFailure, Overflow, SpawnOptions};
use crate::cell::any_cell::AnyCell;
use crate::cell::driver::Driver;
use crate::cell::{ActorCell, NewCell};
use crate::config::DEFAULT_DISPATCHER;
use crate::core::Core;
use crate::dispatch::Dispatcher;
use crate::error::SpawnError;

pub(crate) fn spawn<M: Send + 'static>(
    core: &Arc<Core>,
    options: SpawnOptions,
    driver: Box<dyn Driver<M>>,
    parent: Option<Arc<dyn AnyCell>>,
) -> Result<Arc<ActorCell<M>>, SpawnError> {
    options.check()?;
    if core.is_stopping() {
        return Err(SpawnError::EngineStopped);
    }
    if options.supervision.on_failure == OnFailure::Restart && !driver.can_restart() {
        return Err(SpawnError::NeedsFactory);
    }
    let limit = usize::try_from(limits::ACTORS.default).unwrap_or(usize::MAX);
    if core.alive() >= limit {
        return Err(SpawnError::TooMany { limit });
    }
    let dispatcher = find_dispatcher(core, options.dispatcher.as_deref().unwrap_or(DEFAULT_DISPATCHER))?;
    let name: Option<Arc<str>> = options.name.map(Arc::from);
    if let Some(name) = &name {
        core.reserve(name)?;
    }
    let default = Mailbox { capacity: core.config.mailbox_capacity, overflow: Overflow::Wait };
    let new = NewCell {
        id: core.next_id(),
        core: Arc::clone(core),
        dispatcher,
        name: name.clone(),
        mailbox: options.mailbox.unwrap_or(default),
        supervision: options.supervision,
        parent: parent.clone(),
    };
    let cell = ActorCell::new(new, driver);
    if let Some(parent) = parent
        && !parent.clone().adopt(Arc::clone(&cell) as Arc<dyn AnyCell>)
    {
        if let Some(name) = &name {
            core.release(name);
        }
        return Err(SpawnError::ParentStopped { parent: parent.id() });
    }
    core.add(Arc::clone(&cell) as Arc<dyn AnyCell>);
    cell.launch();
    Ok(cell)
}

fn find_dispatcher(core: &Core, name: &str) -> Result<Arc<Dispatcher>, SpawnError> {
    let dispatchers = core.dispatchers.read();
    dispatchers.get(name).cloned().ok_or_else(|| SpawnError::UnknownDispatcher {
        name: name.to_owned(),
        known: dispatchers.keys().cloned().collect(),
    })
}
