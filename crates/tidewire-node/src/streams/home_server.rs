//! Server of a storage backend: offers it over a link that another part of the process owns.

use std::fmt;
use std::sync::Arc;

use tidewire_engine::EngineHandle;
use tidewire_link::{Link, Runtime, Subscription};

use super::SERVICE;
use super::home_slot::HomeSlot;
use super::service::{StopSignal, service};
use crate::error::Error;
use crate::node::core::{Runner, in_force};
use crate::pending::wait;
use crate::services::instance::ServiceInstance;
use crate::services::serve::{Registration, register};

/// A storage backend that a node offers to the nodes that join its hub, as the service
/// `tidewire-streams`. It ends when it is dropped.
pub struct HomeServer {
    home: Arc<HomeSlot>,
    leaving: Arc<StopSignal>,
    instance: Arc<ServiceInstance>,
    _subscriptions: [Subscription; 2],
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
        let service = service(Arc::clone(&home), &leaving);
        let Registration { instance, subscriptions, answers } = register(link, node, runner, service)?;
        for answer in answers {
            wait(in_force(answer, SERVICE.to_owned()))?;
        }
        Ok(Self { home, leaving, instance, _subscriptions: subscriptions })
    }

    /// Ends calls that wait for events and the streams of held leases, as the node stops. Other
    /// calls go on.
    pub fn leave(&self) {
        self.leaving.leave();
        self.instance.leave();
    }
}

impl Drop for HomeServer {
    fn drop(&mut self) {
        self.leave();
        self.instance.close();
        self.home.close();
    }
}

impl fmt::Debug for HomeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HomeServer({})", self.instance.instance)
    }
}
