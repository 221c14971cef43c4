//! State that all actors of one engine share.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidewire_sync::{Mutex, RwLock, clock};

use crate::actor::id::ActorId;
use crate::cell::any_cell::AnyCell;
use crate::config::EngineConfig;
use crate::dead_letters::DeadLetters;
use crate::dispatch::starvation::Starvation;
use crate::dispatch::{Dispatcher, DispatcherKind, Pool};
use crate::error::SpawnError;
use crate::reply::wait_graph::WaitGraph;
use crate::subjects::Subjects;
use crate::timers::Timers;

const SHARDS: usize = 16;

/// Live names; a name without an actor is reserved for one that is being made.
type Names = HashMap<Arc<str>, Option<Arc<dyn AnyCell>>>;

type Shard = HashMap<u64, Arc<dyn AnyCell>, BuildHasherDefault<IdHasher>>;

/// The shared part of an engine. Locks in here are leaves: nothing else is locked under them, and
/// no user code runs.
pub struct Core {
    pub(crate) config: EngineConfig,
    pub(crate) lane_burst: u8,
    pub(crate) dispatchers: RwLock<BTreeMap<String, Arc<Dispatcher>>>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) dead: DeadLetters,
    pub(crate) rings: WaitGraph,
    pub(crate) subjects: Subjects,
    actors: [Mutex<Shard>; SHARDS],
    alive: AtomicUsize,
    names: Mutex<Names>,
    next_id: AtomicU64,
    /// Tells it from the other engines of the process.
    pub(crate) number: u64,
    started: AtomicBool,
    stopping: AtomicBool,
    /// Asks that ended because their time was up.
    pub(crate) ask_timeouts: AtomicU64,
    born: Instant,
}

impl Core {
    pub(crate) fn new(config: EngineConfig, dispatchers: BTreeMap<String, Arc<Dispatcher>>) -> Arc<Self> {
        // Begun before there are threads: a fork never finds the clock half begun.
        crate::inbox::nanos();
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            lane_burst: u8::try_from(config.lane_burst).unwrap_or(u8::MAX),
            dead: DeadLetters::new(config.dead_letters),
            config,
            dispatchers: RwLock::new(dispatchers),
            timers: Timers::new(),
            rings: WaitGraph::default(),
            subjects: Subjects::default(),
            actors: std::array::from_fn(|_| Mutex::default()),
            alive: AtomicUsize::new(0),
            names: Mutex::default(),
            next_id: AtomicU64::new(1),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            started: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            ask_timeouts: AtomicU64::new(0),
            born: clock::now(),
        })
    }

    pub(crate) fn next_id(&self) -> ActorId {
        ActorId::new(self.next_id.fetch_add(1, Ordering::Relaxed))
    }

    /// How many ids were given.
    pub(crate) fn spawned(&self) -> u64 {
        self.next_id.load(Ordering::Relaxed)
    }

    /// Reserves a name, so that a second spawn with it fails from now on.
    pub(crate) fn reserve(&self, name: &Arc<str>) -> Result<(), SpawnError> {
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(SpawnError::NameTaken { name: name.to_string() });
        }
        names.insert(Arc::clone(name), None);
        Ok(())
    }

    pub(crate) fn add(&self, cell: Arc<dyn AnyCell>) {
        if let Some(name) = cell.name() {
            self.names.lock().insert(Arc::clone(name), Some(Arc::clone(&cell)));
        }
        self.shard(cell.id()).lock().insert(cell.id().get(), cell);
        self.alive.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, id: ActorId, name: Option<&str>) {
        if let Some(name) = name {
            self.names.lock().remove(name);
        }
        let cell = self.shard(id).lock().remove(&id.get());
        if cell.is_some() {
            self.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn release(&self, name: &str) {
        self.names.lock().remove(name);
    }

    pub(crate) fn find(&self, id: ActorId) -> Option<Arc<dyn AnyCell>> {
        self.shard(id).lock().get(&id.get()).cloned()
    }

    pub(crate) fn find_by_name(&self, name: &str) -> Option<Arc<dyn AnyCell>> {
        self.names.lock().get(name).cloned().flatten()
    }

    /// All actors alive, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<dyn AnyCell>> {
        let mut all: Vec<_> =
            self.actors.iter().flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>()).collect();
        all.sort_unstable_by_key(|cell| cell.id());
        all
    }

    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    /// How an actor is called in messages to people.
    pub(crate) fn title(&self, id: ActorId) -> String {
        match self.find(id).and_then(|cell| cell.name().cloned()) {
            Some(name) => format!("{name} ({id})"),
            None => id.to_string(),
        }
    }

    /// The starvation of a dispatcher now, or the last one that was seen at `since` or later. An
    /// ask that ends late may be rendered after the first of the handlers went on.
    pub(crate) fn starvation(&self, dispatcher: &Dispatcher, since: Option<Instant>) -> Option<Starvation> {
        let DispatcherKind::Threads(pool) = &dispatcher.place else { return None };
        match self.starvation_now(pool) {
            Some(now) => {
                *pool.last_starved.lock() = Some((clock::now(), now.clone()));
                Some(now)
            }
            None => {
                let last = pool.last_starved.lock();
                last.as_ref().filter(|(at, _)| since.is_some_and(|since| *at >= since)).map(|(_, last)| last.clone())
            }
        }
    }

    fn starvation_now(&self, pool: &Pool) -> Option<Starvation> {
        let threads = pool.held_threads()?;
        let mut held_by = BTreeMap::new();
        for id in &threads.actors {
            let cell = self.find(*id);
            let parent = cell.as_ref().filter(|cell| cell.name().is_none()).and_then(|cell| cell.parent());
            let named = parent.filter(|parent| parent.name().is_some());
            *held_by.entry(self.title(named.map_or(*id, |parent| parent.id()))).or_default() += 1;
        }
        let options = &pool.options;
        // Spare threads replace only those that wait through the engine. The handler that reports
        // this has just ended its wait.
        let spare = threads.blocked > 0 && threads.blocked + 1 >= options.spare_threads;
        let (setting, value) =
            if spare { ("spare_threads", options.spare_threads) } else { ("threads", options.threads) };
        let name = options.name.strip_prefix("tidewire-").unwrap_or(&options.name);
        Some(Starvation { dispatcher: name.into(), held_by, setting, value })
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }

    /// Marks the engine as started; false if it was.
    pub(crate) fn set_started(&self) -> bool {
        !self.started.swap(true, Ordering::AcqRel)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Marks the engine as stopping; false if it was.
    pub(crate) fn set_stopping(&self) -> bool {
        !self.stopping.swap(true, Ordering::AcqRel)
    }

    /// Microseconds since the engine was made.
    pub(crate) fn now_micros(&self) -> u64 {
        u64::try_from(clock::since(self.born).as_micros()).unwrap_or(u64::MAX)
    }

    pub(crate) fn instant(&self, micros: u64) -> Instant {
        self.born.checked_add(Duration::from_micros(micros)).unwrap_or_else(Instant::now)
    }

    fn shard(&self, id: ActorId) -> &Mutex<Shard> {
        &self.actors[id.get() as usize % SHARDS]
    }
}

/// Ids are given in order: multiplying by an odd constant spreads them well enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
