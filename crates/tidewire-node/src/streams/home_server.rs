//! Server of a storage backend: offers it over a link that another part of the process owns.

use std::sync::{Arc, Weak};

use tidewire_engine::EngineHandle;
use tidewire_link::{Link, Runtime, Subscription};

use super::opening::HomeSlot;
use super::service::service;
use crate::calls::reply_slot::in_force;
use crate::commands;
use crate::error::Error;
use crate::node::core::StoppableInstance;
use crate::node::runner::Runner;
use crate::node::stop_signal::StopSignal;
use crate::pending::wait;
use crate::services::instance::ServiceInstance;
use crate::services::serve::{Registration, register};

/// A storage backend that a node offers to the nodes that join its hub, as the services
/// `tidewire-streams` and `tidewire-commands`. It ends when it is dropped.
#[derive(derive_more::Debug)]
#[debug("HomeServer({})", self.instances[1].id)]
pub struct HomeServer {
    home: Arc<HomeSlot>,
    leaving: Arc<StopSignal>,
    instances: [Arc<ServiceInstance>; 2],
    _subscriptions: [[Subscription; 2]; 2],
}

impl HomeServer {
    /// Offers a storage backend over the link of the node `node` to its hub in this process. Calls
    /// run on the thread of the links, and the engine watches their deadlines. Blocks until the hub
    /// has answered.
    ///
    /// # Errors
    /// `unauthorized` if the token of the node does not allow it.
    pub fn start(
        link: &Link,
        node: &str,
        engine: EngineHandle,
        runtime: Runtime,
        home: HomeSlot,
    ) -> Result<Self, Error> {
        let (home, leaving) = (Arc::new(home), Arc::default());
        let runner = Arc::new(Runner::on_links(engine, runtime));
        let begin = |service| -> Result<_, Error> {
            let Registration { instance, subscriptions, answers } =
                register(link, node, Arc::clone(&runner), Weak::new(), service)?;
            for answer in answers {
                wait(in_force(answer, instance.service.to_string()))?;
            }
            Ok((instance, subscriptions))
        };
        let (commands, commands_subscriptions) = begin(commands::service(&home, &leaving, &runner))?;
        let (streams, streams_subscriptions) = begin(service(Arc::clone(&home), &leaving))?;
        let (instances, subscriptions) = ([commands, streams], [commands_subscriptions, streams_subscriptions]);
        Ok(Self { home, leaving, instances, _subscriptions: subscriptions })
    }

    /// Ends calls that wait for events and the streams of held leases, as the node stops. Other
    /// calls go on.
    pub fn leave(&self) {
        self.leaving.leave();
        self.instances.iter().for_each(|instance| instance.leave());
    }
}

impl Drop for HomeServer {
    fn drop(&mut self) {
        self.leave();
        self.instances.iter().for_each(|instance| instance.close());
        self.home.close();
    }
}
