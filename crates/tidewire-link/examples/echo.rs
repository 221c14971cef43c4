//! Calls an echo service through a hub, and says how long it takes: `echo hub`, `echo serve URL`,
//! `echo call URL BYTES COUNT IN_FLIGHT`.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tidewire_link::{
    Address, Call, Exchange, Failure, Greeting, Handler, HubHandle, HubOptions, Link, Message, OutgoingPayload,
    Published, ReplyWaiter, Runtime,
};
use tidewire_proto::subject::Pattern;
use tidewire_proto::wire::{CallHead, Flags};

struct Echo;

impl Handler for Echo {
    fn called(&self, call: Call) -> Option<Arc<dyn Exchange>> {
        let flusher = call.flusher();
        let payload = call.message.payload().to_vec();
        let _ = call.reply(OutgoingPayload::from(&payload[..]));
        flusher.flush();
        None
    }

    fn published(&self, _: Published) {}
}

struct Answers(SyncSender<Result<usize, u16>>);

impl ReplyWaiter for Answers {
    fn replied(&self, reply: Message) {
        let _ = self.0.send(Ok(reply.payload().len()));
    }

    fn failed(&self, failure: Failure) {
        let _ = self.0.send(Err(failure.number));
    }

    fn item(&self, _: Message) {}

    fn over(&self) {
        let _ = self.0.send(Ok(0));
    }

    fn credited(&self, _: u32) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["hub", url] => {
            let runtime = Runtime::start("hub")?;
            let hub = HubHandle::new(&runtime, HubOptions::new("hub"), |line| eprintln!("{line}"));
            let listening = hub.listen(&url.parse()?)?;
            println!("{}", listening.address);
            std::thread::park();
        }
        ["serve", url] => {
            let runtime = Runtime::start("serve")?;
            let link = join(&runtime, url, "serve")?;
            let (send, receive) = sync_channel(1);
            let pattern = Pattern::new("svc.echo.*")?;
            let _kept = link.subscribe(&pattern, "echo", &[], Arc::new(Echo), Arc::new(Answers(send)))?;
            receive.recv()?.map_err(|number| format!("refused: {number}"))?;
            println!("ready");
            std::thread::park();
        }
        ["call", url, bytes, count, in_flight] => {
            let runtime = Runtime::start("call")?;
            call(&join(&runtime, url, "call")?, bytes.parse()?, count.parse()?, in_flight.parse()?)?;
        }
        _ => eprintln!("echo hub URL | echo serve URL | echo call URL BYTES COUNT IN_FLIGHT"),
    }
    Ok(())
}

fn join(runtime: &Runtime, url: &str, name: &str) -> Result<Link, Box<dyn std::error::Error>> {
    let address: Address = url.parse()?;
    Ok(Link::join(runtime, &address, Greeting::new(name), |line| eprintln!("{line}"))?)
}

fn call(link: &Link, bytes: usize, count: usize, in_flight: usize) -> Result<(), Box<dyn std::error::Error>> {
    let payload = vec![7; bytes];
    let head = CallHead { deadline_ms: 30_000, subject: "svc.echo.echo", ..CallHead::default() };
    let (send, receive) = sync_channel(in_flight.max(1));
    let (mut sent, mut done, mut times) = (0, 0, Vec::new());
    let start = Instant::now();
    let mut last = start;
    while done < count {
        while sent < count && sent - done < in_flight {
            link.call(&head, Flags::NORMAL, OutgoingPayload::from(&payload[..]), Arc::new(Answers(send.clone())))?;
            sent += 1;
        }
        link.flush();
        let length = receive.recv()?.map_err(|number| format!("failed: {number}"))?;
        assert_eq!(length, bytes);
        done += 1;
        if in_flight == 1 {
            times.push(last.elapsed());
            last = Instant::now();
        }
    }
    let all = start.elapsed();
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or(Duration::ZERO);
    println!("{:.0} calls/s, p50 {:?}, p99 {:?}", count as f64 / all.as_secs_f64(), at(50), at(99));
    Ok(())
}
