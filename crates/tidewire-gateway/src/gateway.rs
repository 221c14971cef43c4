//! HTTP gateway of a hub: listen and stop.

use std::sync::Arc;
use std::time::Duration;

use tidewire_link::HubHandle;
use tidewire_node::{Error, Node, NodeOptions};

use crate::address::{check_console, check_open, of_url};
use crate::options::GatewayOptions;
use crate::server::Server;

/// The HTTP gateway of a hub in this process. It ends when it is closed or dropped.
#[derive(derive_more::Debug)]
#[debug("Gateway({url})")]
pub struct Gateway {
    server: Arc<Server>,
    url: String,
}

impl Gateway {
    /// Listens at `http://host:port`; with port 0 the system chooses one. When this returns,
    /// clients can connect.
    ///
    /// # Errors
    /// [`Error`] with `invalid_argument` if the URL or an option is not allowed, and with
    /// `unauthorized` if other computers could connect in clear text. `config_invalid` if the
    /// address is in use, and `name_taken` if the hub has a node of its name.
    pub fn listen(hub: &HubHandle, url: &str, options: GatewayOptions) -> Result<Self, Error> {
        let gateway = Self::bind(hub, url, options)?;
        gateway.accept();
        Ok(gateway)
    }

    /// Takes an address, as [`listen`](Self::listen) does. Clients that connect wait until
    /// [`accept`](Self::accept) is called.
    ///
    /// # Errors
    /// As for [`listen`](Self::listen).
    pub fn bind(hub: &HubHandle, url: &str, mut options: GatewayOptions) -> Result<Self, Error> {
        let address = of_url(url)?;
        let access = hub.access();
        check_open(address, access.is_open(), options.is_insecure)?;
        if options.is_exporter && !address.ip().is_loopback() {
            options.hosts = vec!["*".to_owned()];
        }
        if options.console.is_some() {
            check_console(address, access.is_open())?;
        }
        let log = Arc::clone(&options.log);
        let node = Node::gateway(hub, NodeOptions::named(options.name.clone()).threads(1).log(move |line| log(line)))?;
        let server = Arc::new(Server::start(address, hub, node, access, options)?);
        let url = format!("http://{}", server.address());
        Ok(Self { server, url })
    }

    /// Accepts clients from now on.
    pub fn accept(&self) {
        self.server.accept();
    }

    /// Where it listens, with the real port.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Waits until no request is open, at most so long; true if idle in time.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn idle(&self, most: Duration) -> impl Future<Output = bool> + Send + use<> {
        let server = Arc::clone(&self.server);
        async move { server.idle(most).await }
    }

    /// Stops accepting connections and requests, and lets open requests end; streams end at once. A
    /// second time does nothing.
    pub fn close(&self) {
        self.server.close();
    }
}
