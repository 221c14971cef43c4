//! The scenarios of `spec/scenarios`, which nodes of every language play.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use serde::Deserialize;
use tidewire_node::{
    Client, Error, Failure, Function, Node, NodeOptions, Pending, Priority, RemoteFunction, Served, Service, Stopped,
};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{PATIENCE, unix_url};

#[derive(Deserialize)]
struct Scenario {
    name: String,
    instances: Vec<String>,
    limits: HashMap<String, usize>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    Call {
        id: String,
        method: String,
        priority: Option<String>,
        timeout_s: Option<f64>,
        instance: Option<String>,
    },
    Begins {
        id: String,
        at: Option<String>,
    },
    Waits {
        instance: String,
        count: usize,
    },
    LetGo {
        id: String,
    },
    Ends {
        id: String,
        #[serde(rename = "as")]
        how: String,
    },
    Cancel {
        id: String,
    },
    Cancelled {
        id: String,
    },
    Remote {
        node: String,
        given: usize,
        held: usize,
    },
    Known {
        instances: Vec<String>,
    },
    Serve {
        instance: String,
    },
    Leave {
        instance: String,
    },
    Gone {
        instance: String,
    },
    HubStops,
    HubStarts,
    Joined,
}

/// Reports of handlers, and the semaphores that release them.
#[derive(Clone)]
struct Stage {
    begun: UnboundedSender<(String, String)>,
    cancelled: UnboundedSender<String>,
    doors: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Stage {
    fn door(&self, id: &str) -> Arc<Semaphore> {
        let mut doors = self.doors.lock().expect("nobody panics");
        Arc::clone(doors.entry(id.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(0))))
    }

    /// A handler that runs until it is released.
    async fn inside(self, id: String, instance: Arc<str>) -> Result<String, Failure> {
        let _ = self.begun.send((id.clone(), instance.to_string()));
        let door = self.door(&id);
        let mut leaves = Leaves(Some((self.cancelled, id)));
        door.acquire().await?.forget();
        leaves.0 = None;
        Ok(instance.to_string())
    }

    fn room(&self, instance: &str, limits: &HashMap<String, usize>) -> Service {
        let instance: Arc<str> = instance.into();
        let inside = || {
            let (stage, instance) = (self.clone(), Arc::clone(&instance));
            move |id| stage.clone().inside(id, Arc::clone(&instance))
        };
        let (hold, steady, items, keep, fail) = (inside(), inside(), inside(), inside(), inside());
        let room = Service::new("room")
            .instance(&*instance)
            .method("hold", &["id"], move |_, id: String| hold(id))
            .method("steady", &["id"], move |_, id: String| steady(id))
            .method("keep", &["id", "function"], move |_, (id, function): (String, RemoteFunction)| {
                let inside = keep(id);
                async move {
                    let _function = function;
                    inside.await
                }
            })
            .method("fail", &["id"], move |_, id: String| {
                let inside = fail(id);
                async move { Err::<String, _>(Failure::new("test:Failed", inside.await?)) }
            })
            .stream("items", &["id"], move |_, id: String| Once(Some(Box::pin(items(id)))));
        limits.iter().fold(room, |room, (limit, value)| match &**limit {
            "concurrency" => room.concurrency(*value),
            "waiting" => room.waiting(*value),
            "streams" => room.streams(*value),
            other => panic!("limits: {other:?}"),
        })
    }
}

/// Reports that a handler was dropped before it was released.
struct Leaves(Option<(UnboundedSender<String>, String)>);

impl Drop for Leaves {
    fn drop(&mut self) {
        if let Some((cancelled, id)) = self.0.take() {
            let _ = cancelled.send(id);
        }
    }
}

/// A stream of one item.
struct Once<F>(Option<Pin<Box<F>>>);

impl<F: Future> Stream for Once<F> {
    type Item = F::Output;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(future) = &mut self.0 else { return Poll::Ready(None) };
        let item = std::task::ready!(future.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(Some(item))
    }
}

async fn made(room: Client, method: String, id: String) -> Result<String, Error> {
    match &*method {
        "items" => {
            let mut items = room.stream::<String>("items", &id);
            let item = items.next().await.expect("an item")?;
            assert!(items.next().await.is_none());
            Ok(item)
        }
        "keep" => {
            let function = Function::new("nothing", &[], |_, ()| async { Ok(()) });
            room.call("keep", &(id, &function)).await
        }
        "steady" => room.idempotent().call(&method, &id).await,
        _ => room.call(&method, &id).await,
    }
}

struct World {
    url: String,
    hub: Option<Node>,
    nodes: HashMap<String, (Node, Option<Served>)>,
    leaving: HashMap<String, Pending<Stopped>>,
    calls: HashMap<String, JoinHandle<Result<String, Error>>>,
    stage: Stage,
    limits: HashMap<String, usize>,
    begun: UnboundedReceiver<(String, String)>,
    cancelled: UnboundedReceiver<String>,
    ended: Vec<String>,
}

fn options(name: &str) -> NodeOptions {
    NodeOptions::named(name).heartbeat(Duration::from_secs(10))
}

impl World {
    async fn new(scenario: &Scenario) -> Self {
        let ((begins, begun), (cancels, cancelled)) = (unbounded_channel(), unbounded_channel());
        let stage = Stage { begun: begins, cancelled: cancels, doors: Arc::default() };
        let (url, limits) = (unix_url(), scenario.limits.clone());
        let (nodes, leaving, calls) = Default::default();
        let mut world =
            Self { url, hub: None, nodes, leaving, calls, stage, limits, begun, cancelled, ended: Vec::new() };
        world.hub_starts().await;
        for instance in &scenario.instances {
            world.serve(instance).await;
        }
        let caller = Node::join(&world.url, options("caller")).await.expect("it joins");
        world.nodes.insert("caller".to_owned(), (caller, None));
        world
    }

    async fn hub_starts(&mut self) {
        self.hub = Some(Node::listen(&self.url, options("hub")).await.expect("it listens"));
    }

    async fn serve(&mut self, instance: &str) {
        let node = Node::join(&self.url, options(instance)).await.expect("it joins");
        let served = node.serve(self.stage.room(instance, &self.limits)).await.expect("it serves");
        self.nodes.insert(instance.to_owned(), (node, Some(served)));
    }

    fn room(&self, priority: Option<&str>, timeout_s: Option<f64>, instance: Option<String>) -> Client {
        let priority = match priority.unwrap_or("normal") {
            "urgent" => Priority::Urgent,
            "high" => Priority::High,
            "normal" => Priority::Normal,
            "low" => Priority::Low,
            other => panic!("priority: {other:?}"),
        };
        let room = self.nodes["caller"].0.client("room").priority(priority);
        let room = room.timeout(timeout_s.map_or(2 * PATIENCE, Duration::from_secs_f64));
        instance.into_iter().fold(room, Client::instance)
    }

    async fn play(&mut self, step: Step) {
        match step {
            Step::Call { id, method, priority, timeout_s, instance } => {
                let room = self.room(priority.as_deref(), timeout_s, instance);
                let call = tokio::spawn(made(room, method, id.clone()));
                self.calls.insert(id, call);
            }
            Step::Begins { id, at } => {
                let (begun, instance) = self.begun.recv().await.expect("handlers say so");
                assert_eq!(begun, id);
                assert!(at.is_none_or(|at| at == instance), "at {instance}");
            }
            Step::Waits { instance, count } => {
                let served = self.nodes[&instance].1.as_ref().expect("it serves");
                until(|| served.statistics().waiting == count).await;
            }
            Step::LetGo { id } => self.stage.door(&id).add_permits(1),
            Step::Ends { id, how } => {
                let ended = self.calls.remove(&id).expect("it was made").await.expect("it does not panic");
                let ended = ended.map_or_else(|error| error.code().name(), |_| "ok");
                assert_eq!(ended, how);
            }
            Step::Cancel { id } => {
                let call = self.calls.remove(&id).expect("it was made");
                call.abort();
                let _ = call.await;
            }
            Step::Cancelled { id } => {
                while !self.ended.contains(&id) {
                    self.ended.push(self.cancelled.recv().await.expect("handlers say so"));
                }
                self.ended.retain(|ended| *ended != id);
            }
            Step::Remote { node, given, held } => {
                let counts = self.nodes[&node].0.until_remote(move |now| (now.given, now.held) == (given, held));
                counts.await.expect("it runs");
            }
            // A node of Rust asks its hub, where it does not let that choose.
            Step::Known { instances } => loop {
                let known = self.nodes["caller"].0.services().await.expect("a list");
                let known = known.into_iter().find(|info| info.name == "room");
                if known.is_some_and(|info| info.instances == instances) {
                    break;
                }
                tokio::task::yield_now().await;
            },
            Step::Serve { instance } => self.serve(&instance).await,
            Step::Leave { instance } => {
                let mut leaving = self.nodes.remove(&instance).expect("it runs").0.stop(PATIENCE);
                // It begins when it is polled.
                let _ = poll_fn(|context| Poll::Ready(Pin::new(&mut leaving).poll(context).is_ready())).await;
                self.leaving.insert(instance, leaving);
            }
            Step::Gone { instance } => {
                let _ = self.leaving.remove(&instance).expect("it leaves").await.expect("it stops");
            }
            Step::HubStops => {
                let hub = self.hub.take().expect("it runs");
                hub.stop(Duration::ZERO).await.expect("it stops");
            }
            Step::HubStarts => self.hub_starts().await,
            Step::Joined => {
                let caller = self.nodes["caller"].0.clone();
                until(|| caller.is_joined()).await;
            }
        }
    }
}

async fn until(holds: impl Fn() -> bool) {
    while !holds() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn play_all(file: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/scenarios");
    let text = std::fs::read_to_string(folder.join(file)).expect("a file of scenarios");
    let scenarios: Vec<Scenario> = serde_json::from_str(&text).expect("scenarios");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("it starts");
    for scenario in scenarios {
        runtime.block_on(async {
            let mut world = World::new(&scenario).await;
            for step in scenario.steps {
                let said = format!("{}: {step:?}", scenario.name);
                println!("{said}");
                timeout(PATIENCE, world.play(step)).await.unwrap_or_else(|_| panic!("{said}: not in time"));
            }
            assert!(world.begun.try_recv().is_err() && world.cancelled.try_recv().is_err(), "{}", scenario.name);
            assert!(world.ended.is_empty(), "{}: {:?}", scenario.name, world.ended);
            assert!(world.calls.is_empty(), "{}: no step waits for {:?}", scenario.name, world.calls.keys());
        });
    }
}

#[test]
fn admission() {
    play_all("admission.json");
}

#[test]
fn priority() {
    play_all("priority.json");
}

#[test]
fn retry() {
    play_all("retry.json");
}

#[test]
fn cancellation() {
    play_all("cancellation.json");
}

#[test]
fn deadlines() {
    play_all("deadlines.json");
}

#[test]
fn release() {
    play_all("release.json");
}
