//! Tidewire's links. Forms: hub (through a hub in a third process), direct (the service's process
//! is the hub).

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidewire_link::{
    Call, Exchange, Failure, Greeting, Handler, HubHandle, HubOptions, Link as Joined, Listening, Message,
    OutgoingPayload, PayloadParts, Published, ReplyWaiter, Runtime, Subscription,
};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, Flags, PublishHead};
use tokio::sync::oneshot;

use crate::Fault;
use crate::roles::{Options, Role, Service, announce, call};
use crate::workloads::Link;

/// Above this a payload is handed over, and cut while it is sent.
const SHORT_BYTES: usize = 65_536;
/// Messages that are written at once.
const BURST: usize = 64;

pub async fn run(options: &Options) -> Result<(), Fault> {
    let runtime = Runtime::start("bench")?;
    let direct = options.form == "direct";
    match options.role {
        Role::Hub => {
            let (_hub, listening) = hub(&runtime)?;
            announce(&listening.address.to_string()).await
        }
        Role::Service if direct => {
            let (hub, listening) = hub(&runtime)?;
            // The hub ends with its last handle.
            let place = hub.clone();
            let here = move || Joined::join_local(&place, Greeting::new("service"));
            let link = tokio::task::spawn_blocking(here).await??;
            let served = serve(&link, &listening.address.to_string()).await;
            drop(hub);
            served
        }
        Role::Service => serve(&join(&runtime, &options.url, "service").await?, &options.url).await,
        Role::Caller => call(Caller(join(&runtime, &options.url, "caller").await?), options).await,
        Role::Crowd => crowd(&runtime, &options.url, options.count).await,
    }
}

fn hub(runtime: &Runtime) -> Result<(HubHandle, Listening), Fault> {
    let hub = HubHandle::new(runtime, HubOptions::new("hub"), |line| eprintln!("{line}"));
    let listening = hub.listen(&"tide://127.0.0.1:0".parse()?)?;
    Ok((hub, listening))
}

async fn join(runtime: &Runtime, url: &str, name: &str) -> Result<Joined, Fault> {
    let (runtime, address, greeting) = (runtime.clone(), url.parse()?, Greeting::new(name));
    let joining = move || Joined::join(&runtime, &address, greeting, |line| eprintln!("{line}"));
    Ok(tokio::task::spawn_blocking(joining).await??)
}

async fn serve(link: &Joined, url: &str) -> Result<(), Fault> {
    let service = Arc::new(Service::default());
    let _kept = [subscribe(link, "echo", Echo(service.clone())).await?, subscribe(link, "take", Take(service)).await?];
    announce(url).await
}

async fn crowd(runtime: &Runtime, url: &str, count: usize) -> Result<(), Fault> {
    let mut joined = Vec::with_capacity(count);
    for number in 0..count {
        let link = join(runtime, url, &format!("crowd-{number}")).await?;
        let subscription = subscribe(&link, &format!("crowd.{number}"), Take(Arc::default())).await?;
        joined.push((link, subscription));
    }
    announce(url).await
}

async fn subscribe(link: &Joined, pattern: &str, handler: impl Handler + 'static) -> Result<Subscription, Fault> {
    let (told, waiting) = Reply::new();
    let subscription = link.subscribe(&Pattern::new(pattern)?, "", &[], Arc::new(handler), waiting)?;
    told.await??;
    Ok(subscription)
}

struct Echo(Arc<Service>);

impl Handler for Echo {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let flusher = call.flusher();
        let payload = Bytes::copy_from_slice(call.message.payload());
        let answer = self.0.echo(payload);
        // Its caller may have gone.
        let _ = call.reply(sending(&answer));
        flusher.flush();
        None
    }

    fn published(&self, _: Published) {}
}

struct Take(Arc<Service>);

impl Handler for Take {
    fn called(&self, _: Call) -> Option<Arc<dyn Exchange>> {
        None
    }

    fn published(&self, _: Published) {
        self.0.take();
    }
}

fn sending(data: &Bytes) -> OutgoingPayload<'_> {
    if data.len() <= SHORT_BYTES {
        OutgoingPayload::Short(data)
    } else {
        OutgoingPayload::Long(Box::new(data.clone()) as Box<dyn PayloadParts>)
    }
}

/// Waiter for one reply.
struct Reply(Mutex<Option<oneshot::Sender<Result<Bytes, Fault>>>>);

impl Reply {
    fn new() -> (oneshot::Receiver<Result<Bytes, Fault>>, Arc<Self>) {
        let (send, receive) = oneshot::channel();
        (receive, Arc::new(Self(Mutex::new(Some(send)))))
    }

    fn say(&self, what: Result<Bytes, Fault>) {
        if let Some(send) = self.0.lock().take() {
            // The waiter may have gone.
            let _ = send.send(what);
        }
    }
}

impl ReplyWaiter for Reply {
    fn replied(&self, reply: Message) {
        self.say(Ok(Bytes::copy_from_slice(reply.payload())));
    }

    fn failed(&self, failure: Failure) {
        self.say(Err(format!("the call failed with error {}", failure.number).into()));
    }

    fn item(&self, _: Message) {}

    fn over(&self) {
        self.say(Ok(Bytes::new()));
    }

    fn credited(&self, _: u32) {}
}

#[derive(Clone)]
struct Caller(Joined);

impl Link for Caller {
    async fn echo(&self, data: Bytes) -> Result<Bytes, Fault> {
        let (told, waiting) = Reply::new();
        let head = CallHead { deadline_ms: 50_000, subject: "echo", ..CallHead::default() };
        self.0.call(&head, Flags::NORMAL, sending(&data), waiting)?;
        self.0.flush();
        told.await?
    }

    async fn stream(&self, messages: Vec<Bytes>) -> Result<(), Fault> {
        let head = PublishHead { subject: "take", ..PublishHead::default() };
        for burst in messages.chunks(BURST) {
            for message in burst {
                while self.0.publish(&head, Flags::NORMAL, OutgoingPayload::Short(message)).is_err() {
                    // As many as may wait do: the other side has to catch up.
                    self.0.flush();
                    tokio::task::yield_now().await;
                }
            }
            self.0.flush();
        }
        Ok(())
    }
}
