//! Federation: a hub that joins another hub, as one of its nodes, and shares what is named.
//!
//! The link to the other hub has the rights of its token there. The link to the own hub has the
//! rights of the export and import lists alone.

mod direction;
mod forwarded_call;
mod options;
mod service_mirror;
mod statistics;
mod stream_mirror;
mod subject_mirror;

pub use options::FederationOptions;
pub use statistics::{DirectionStatistics, FederationStatistics, SharedNames};

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tidewire_core::backoff::Backoff;
use tidewire_core::federation::{FederationTable, ShareList, check_hub_name};
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::Mutex;
use tidewire_link::{Address, Grant, Greeting, HubHandle, JoinError, Link, Rights};
use tidewire_proto::generated::errors::ErrorCode;
use tidewire_proto::subject::Pattern;
use tidewire_proto::subject::grammar::{MIRROR, SOURCE, STREAMS, agent_subject, scoped_method, service_subject};

use crate::error::Error;
use crate::federation::direction::Direction;
use crate::federation::service_mirror::ServiceMirror;
use crate::federation::statistics::DirectionCounts;
use crate::federation::stream_mirror::StreamMirror;
use crate::names;
use crate::node::core::{Core, Node};
use crate::node::options::NodeOptions;
use crate::pending::{Pending, Signal, Wakers};

/// The names that a hub shares with the one that it joins, and the way to it.
#[derive(Clone)]
pub struct FederationSettings {
    /// The shared names.
    pub table: FederationTable,
    /// Where the other hub is.
    pub address: Address,
    /// Token and limits of the link there; its name is that of this hub in the table.
    pub greeting: Greeting,
}

/// A hub of this process that has joined another hub. It shares names until it is closed or
/// dropped.
#[derive(derive_more::Debug)]
#[debug("Federation({})", self.shared.address)]
pub struct Federation {
    shared: Arc<Shared>,
    /// Ends the thread that joins.
    _stop: SyncSender<()>,
}

/// Callback for a line of the log, and true for a problem.
type Notice = Arc<dyn Fn(&str, bool) + Send + Sync>;

struct Shared {
    hub: HubHandle,
    address: String,
    engine: EngineHandle,
    log: Notice,
    state: Mutex<State>,
    closing: Arc<Signal>,
    changed: Wakers,
    /// How often the link to the other hub was lost.
    lost: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// The nodes at the other hub and at this one.
    sides: Option<Sides>,
    failure: Option<Error>,
}

struct Sides {
    there: Node,
    here: Node,
    directions: [Arc<Direction>; 2],
}

impl Federation {
    /// Begins to join. While nobody is at the address, it tries again with growing pauses.
    ///
    /// `log` is given a line, and true for a problem.
    ///
    /// # Errors
    /// [`Error`] if the name of the hub can't be part of a path, or the system has no thread left.
    pub fn open(
        hub: &HubHandle,
        engine: EngineHandle,
        settings: FederationSettings,
        log: impl Fn(&str, bool) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        check_hub_name("name", &hub.name()).map_err(Error::invalid)?;
        let shared = Arc::new(Shared {
            hub: hub.clone(),
            address: settings.address.to_string(),
            engine,
            log: Arc::new(log),
            state: Mutex::default(),
            closing: Arc::default(),
            changed: Wakers::default(),
            lost: Arc::default(),
        });
        let (stop, stopped) = sync_channel(0);
        let joins = Arc::clone(&shared);
        let joining = move || {
            let mut backoff = Backoff::new(
                settings.greeting.backoff_ms.0.saturating_mul(1_000),
                settings.greeting.backoff_ms.1.saturating_mul(1_000),
                names::dice(),
            );
            while let Err(failure) = joins.join(&settings) {
                // A hub has the name of a lost link for a while, and may be stopping.
                let is_passing = [ErrorCode::NameTaken, ErrorCode::NodeStopped].contains(&failure.code());
                if !failure.is_retryable() && !is_passing {
                    return joins.failed(failure);
                }
                if backoff.attempts() == 0 {
                    (joins.log)(&format!("{failure}: trying again"), true);
                }
                let pause = Duration::from_micros(backoff.next_delay_us());
                if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("tidewire-federation".to_owned()).spawn(joining);
        started.map_err(|error| {
            Error::new(ErrorCode::LimitExceeded, format!("threads: the system gives none: {error}"))
        })?;
        Ok(Self { shared, _stop: stop })
    }

    /// True while there is a link to the other hub.
    pub fn is_joined(&self) -> bool {
        self.shared.state.lock().sides.as_ref().is_some_and(|sides| sides.there.is_joined())
    }

    /// The state of the join, and the calls and messages that have crossed.
    pub fn statistics(&self) -> FederationStatistics {
        self.shared.statistics()
    }

    /// Waits until the hubs are joined, and what they have and share is visible at both. Mirrors of
    /// streams exist then, unless the log says why not; their events follow.
    ///
    /// # Errors
    /// Awaiting it fails with the reason of a refusal, such as `unauthorized`, and with
    /// `node_stopped` if the federation is closed before.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub fn ready(&self) -> Pending<()> {
        let shared = Arc::clone(&self.shared);
        Pending::new(async move {
            let directions = shared.changed.until(|| shared.directions()).await?;
            for direction in directions {
                for signal in direction.opened.iter().map(|opened| &**opened).chain([&direction.refreshed]) {
                    std::future::poll_fn(|context| signal.poll(context)).await;
                }
            }
            Ok(())
        })
    }

    /// Leaves the other hub: names of each are no longer visible at the other, and calls in flight
    /// fail with `link_lost`.
    pub fn close(&self) {
        self.shared.close();
    }
}

impl Drop for Federation {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn directions(&self) -> Option<Result<[Arc<Direction>; 2], Error>> {
        let state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Some(Err(failure.clone()));
        }
        if self.closing.is_set() {
            let text = format!("{}: the federation is closed: join again", self.address);
            return Some(Err(Error::new(ErrorCode::NodeStopped, text)));
        }
        state.sides.as_ref().map(|sides| Ok(sides.directions.clone()))
    }

    fn statistics(&self) -> FederationStatistics {
        let state = self.state.lock();
        let sides = state.sides.as_ref();
        let of = |at: usize| sides.map(|sides| sides.directions[at].counts.statistics()).unwrap_or_default();
        FederationStatistics {
            url: self.address.clone(),
            hub: sides.map(|sides| sides.directions[0].hubs.1.clone()).unwrap_or_default(),
            is_joined: sides.is_some_and(|sides| sides.there.is_joined()),
            lost: self.lost.load(Relaxed),
            exports: of(0),
            imports: of(1),
        }
    }

    fn failed(&self, failure: Error) {
        (self.log)(&format!("{}: the other hub is not joined: {failure}", self.address), true);
        self.state.lock().failure = Some(failure);
        self.changed.wake();
    }

    /// One attempt to join both sides.
    fn join(&self, settings: &FederationSettings) -> Result<(), Error> {
        let (hub, table) = (&self.hub, &settings.table);
        let greeting = Greeting { name: table.own.clone(), hub: Some(hub.name()), ..settings.greeting.clone() };
        let log = Arc::clone(&self.log);
        let link = Link::join(hub.runtime(), &settings.address, greeting, move |line| log(line, true))?;
        let other = link.joined().map(|joined| joined.hub).unwrap_or_default();
        let own = hub.name();
        check_hub_name("name of the other hub", &other).map_err(Error::invalid)?;
        if other == own {
            let text = format!("name: both hubs are {own:?}: give one of them another name");
            return Err(Error::invalid(text));
        }
        let there = self.node(link, &table.own);
        let partner = table.partner.as_deref().unwrap_or(&other);
        let grant = partner_grant(partner, table)?;
        let link = Link::join_partner(hub, grant, Greeting { hub: Some(other.clone()), ..Greeting::new(partner) })
            .map_err(|error| refused(partner, &error))?;
        let here = self.node(link, partner);
        let direction = |source: &Node, target: &Node, hubs: [&str; 2], shared: &ShareList, instance: &str| {
            Arc::new(Direction {
                source: Arc::clone(source.core()),
                target: Arc::clone(target.core()),
                hubs: (hubs[0].to_owned(), hubs[1].to_owned()),
                shared: shared.clone(),
                instance: instance.to_owned(),
                refreshed: Signal::default(),
                opened: shared.streams.iter().map(|_| Arc::default()).collect(),
                closing: Arc::clone(&self.closing),
                counts: DirectionCounts::default(),
            })
        };
        let directions = [
            direction(&here, &there, [&own, &other], &table.exports, &table.own),
            direction(&there, &here, [&other, &own], &table.imports, partner),
        ];
        {
            let mut state = self.state.lock();
            if self.closing.is_set() {
                return Ok(());
            }
            state.sides = Some(Sides { there, here, directions: directions.clone() });
        }
        for direction in directions {
            for (stream, opened) in direction.shared.streams.iter().zip(&direction.opened) {
                let mirror = StreamMirror::new(Arc::clone(&direction), stream.clone(), Arc::clone(opened));
                hub.runtime().spawn(mirror.run());
            }
            hub.runtime().spawn(ServiceMirror::new(direction).run());
        }
        (self.log)(&format!("the hub {other:?} at {} is joined as {:?}", self.address, table.own), false);
        self.changed.wake();
        Ok(())
    }

    /// A node over a link, which knows when its link is lost and back.
    fn node(&self, link: Link, name: &str) -> Node {
        let [log, changes] = [Arc::clone(&self.log), Arc::clone(&self.log)];
        let options = NodeOptions::named(name).log(move |line| log(line, true));
        let options = options.changes(move |line| changes(line, false));
        let node = Node::over(link, options, self.engine.clone(), self.hub.runtime().clone());
        let [again, lost] = [Arc::downgrade(node.core()), Arc::downgrade(node.core())];
        let directory_missed =
            |core: &std::sync::Weak<Core>| core.upgrade().into_iter().for_each(|core| core.directory.missed());
        let link = &node.core().link;
        link.on_joined_again(move || {
            again.upgrade().into_iter().for_each(|core| Node::of(core).joined_again());
        });
        let losses = Arc::clone(&self.lost);
        link.on_lost(move || {
            losses.fetch_add(1, Relaxed);
            directory_missed(&lost);
        });
        node
    }

    fn close(&self) {
        self.closing.set();
        let sides = self.state.lock().sides.take();
        if let Some(Sides { there, here, .. }) = &sides {
            [there, here].into_iter().for_each(|node| node.core().link.close());
        }
        self.changed.wake();
    }
}

/// The rights of the other hub at this one: the exports to call and to hear of, and the imports to
/// serve and to publish.
fn partner_grant(partner: &str, table: &FederationTable) -> Result<Grant, Error> {
    let texts = |patterns: &[Pattern]| patterns.iter().map(|one| one.as_str().to_owned()).collect::<Vec<_>>();
    let agents: Vec<_> = table.exports.agents.iter().map(|agent| agent_subject(&agent.name)).collect();
    let calls = table.exports.services.iter().map(|service| service_subject(&service.name, ">"));
    let stream = |kind: &str, name: &str| service_subject(STREAMS, &scoped_method(kind, name));
    let sources = table.exports.streams.iter().map(|shared| stream(SOURCE, &shared.name));
    let mirrors = table.imports.streams.iter().map(|shared| stream(MIRROR, &shared.seen_as));
    let rights = Rights {
        publish: Some([&texts(&table.imports.subjects)[..], &agents].concat()),
        subscribe: Some(texts(&table.exports.subjects)),
        call: Some(calls.chain(sources).chain(mirrors).chain(agents).collect()),
        answer: Some(table.imports.agents.iter().map(|agent| agent_subject(&agent.seen_as)).collect()),
        serve: Some(table.imports.services.iter().map(|service| service.seen_as.clone()).collect()),
        partner: true,
        ..Rights::default()
    };
    // No node joins with it: it is for one link of this process.
    let grant = Grant::of("", partner, &rights);
    grant.map_err(|wrong| Error::new(ErrorCode::InvalidSubject, wrong.to_string()))
}

fn refused(partner: &str, error: &JoinError) -> Error {
    let JoinError::Told(_, number, text) = error else { return Error::invalid(format!("{partner}: {error}")) };
    let code = ErrorCode::from_number(*number).unwrap_or(ErrorCode::WireError);
    Error::new(code, format!("the hub {partner:?} is not taken in here: {text}"))
}
