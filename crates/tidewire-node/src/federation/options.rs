//! Options of a federation, and the method of a node that begins one.

use std::sync::Arc;

use tidewire_core::federation::FederationTable;
use tidewire_link::Tls;

use crate::error::Error;
use crate::federation::{Federation, FederationSettings};
use crate::node::core::Node;
use crate::node::join::{address, greeting};
use crate::node::options::NodeOptions;

/// The names that a hub shares with another hub, and the credentials of its link there.
#[derive(Clone, derive_more::Debug)]
// The token is a secret.
#[debug("FederationOptions({own:?}, exports {exports:?}, imports {imports:?})")]
pub struct FederationOptions {
    own: String,
    exports: Vec<String>,
    imports: Vec<String>,
    token: Option<String>,
    tls: Option<Tls>,
}

impl FederationOptions {
    /// Options of a hub that is known under this name at the other one.
    pub fn named(own: impl Into<String>) -> Self {
        Self { own: own.into(), exports: Vec::new(), imports: Vec::new(), token: None, tls: None }
    }

    /// Shares a service, an agent such as `agent:planner`, a stream such as `stream:orders`, each
    /// perhaps with `=alias`, or a pattern of subjects such as `orders.>`. The other hub sees a
    /// service as `own:name`, an agent as `own:planner`, the mirror of a stream as `own-orders`, or
    /// by its alias.
    pub fn export(mut self, name: impl Into<String>) -> Self {
        self.exports.push(name.into());
        self
    }

    /// Makes something of the other hub visible here: `hub:service`, which is its name here,
    /// `hub:service=alias`, `hub:agent:planner`, `hub:stream:orders`, or `hub:pattern`, whose
    /// subjects keep their names.
    pub fn import(mut self, name: impl Into<String>) -> Self {
        self.imports.push(name.into());
        self
    }
}

setters! {
    FederationOptions:
    /// Token of this hub at the other one. Its rights there hold for all that is shared.
    token(token: impl Into<String>) => token = Some(token.into());
    /// Certificates for `tide+tls://` and `wss://`.
    tls(tls: Tls) => tls = Some(tls);
}

impl Node {
    /// Joins another hub, as a node of it, and shares names with it: for a node that is a hub
    /// itself. While nobody is at the URL, it tries again; [`Federation::ready`] waits for it. The
    /// federation ends when it is dropped.
    ///
    /// ```
    /// use tidewire_node::{FederationOptions, Node, NodeOptions, Service};
    ///
    /// let paris = Node::listen("tide://127.0.0.1:0", NodeOptions::named("paris")).wait()?;
    /// let berlin = Node::listen("tide://127.0.0.1:0", NodeOptions::named("berlin")).wait()?;
    /// berlin.serve(Service::new("pricing").method("quote", &[], |_, ()| async { Ok(7) })).wait()?;
    ///
    /// let shared = FederationOptions::named("berlin").export("pricing");
    /// let federation = berlin.federate(&paris.urls()[0], shared)?;
    /// federation.ready().wait()?;
    /// assert_eq!(paris.client("berlin:pricing").call::<i64>("quote", &()).wait()?, 7);
    /// # Ok::<(), tidewire_node::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error`] with `invalid_argument` if the URL or a name is not allowed, or this node is no
    /// hub. Refusals of the other hub are errors of `ready`, and logged.
    pub fn federate(&self, url: &str, options: FederationOptions) -> Result<Federation, Error> {
        let core = self.core();
        core.check()?;
        let (Some(hub), Some(engine)) = (&core.hub, &core.engine) else {
            return Err(Error::invalid(format!("{}: it is no hub: a hub joins another one", core.name)));
        };
        let FederationOptions { own, exports, imports, token, tls } = options;
        let table = FederationTable::new(&own, &exports, &imports).map_err(Error::invalid)?;
        let mut node = NodeOptions::named(own);
        node.tls = tls;
        let settings = FederationSettings { table, address: address(url, &node)?, greeting: greeting(&node, token) };
        let (log, changes) = (core.log.clone(), core.changes.clone());
        let notice = move |line: &str, is_wrong| if is_wrong { log(line) } else { changes(line) };
        let opened = Federation::open(hub, engine.handle(), settings, notice)?;
        let mut known = core.federations.lock();
        known.retain(|row| row().is_some());
        let shared = Arc::downgrade(&opened.shared);
        known.push(Box::new(move || shared.upgrade().map(|shared| shared.statistics().row())));
        Ok(opened)
    }
}
