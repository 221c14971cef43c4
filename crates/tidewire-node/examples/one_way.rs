//! Benchmark of one-way messages over TCP, from a node over a hub to another node. A bare tokio
//! socket with batched writes is the reference: `cargo run --release -p tidewire-node --example
//! one_way [messages]`.
//!
//! The clock runs from the first message sent to the last one received. The sender is at most
//! 10,000 messages ahead of its receiver, because a subscription buffers no more than its capacity.
//! The bare socket waits for nothing, and has one hop where the nodes have two.

mod measuring;

use std::time::Instant;

use measuring::{BYTES, Fault, figures, nodes, rounds};
use tidewire_node::values::Bytes;
use tidewire_node::{Node, SubscribeOptions, Subscription};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Messages that are sent before the receiver must have read those before them.
const AHEAD: usize = 5_000;

fn main() -> Result<(), Fault> {
    let messages = measuring::count(200_000)?;
    let (_hub, receiver, sender) = nodes()?;
    let options = SubscribeOptions::default().capacity(2 * AHEAD);
    let mut subscription = receiver.subscribe_with("data", options).wait()?;
    println!("{messages} messages of {BYTES} B, rounds in turns; {}", measuring::machine());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    let (mut published, mut bare) = (Vec::new(), Vec::new());
    for _ in rounds() {
        published.push(publish(&sender, &mut subscription, messages)?);
        bare.push(runtime.block_on(write(messages))?);
    }
    figures("tidewire, published", "messages/s", &mut published);
    figures("bare tokio socket, in batches of 64", "messages/s", &mut bare);
    Ok(())
}

/// Messages a second that reach a subscription of another node.
fn publish(sender: &Node, subscription: &mut Subscription, messages: usize) -> Result<f64, Fault> {
    let data = Bytes(vec![7; BYTES]);
    let (tell, read_rx) = std::sync::mpsc::sync_channel(messages / AHEAD + 1);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            for number in 1..=messages {
                let message = subscription.next_blocking().ok_or("the subscription has ended")?;
                message.read::<Bytes>()?;
                if number % AHEAD == 0 {
                    tell.send(())?;
                }
            }
            Ok::<_, Fault>(Instant::now())
        });
        for number in 0..messages {
            if number >= 2 * AHEAD && number % AHEAD == 0 {
                read_rx.recv()?;
            }
            sender.publish("data", &data)?;
        }
        let end = reading.join().map_err(|_| "the reader panicked")??;
        Ok(messages as f64 / (end - begin).as_secs_f64())
    })
}

/// Messages a second over a socket.
async fn write(messages: usize) -> Result<f64, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut socket = TcpStream::connect(listener.local_addr()?).await?;
    let reading = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await?;
        let mut data = [0; BYTES];
        for _ in 0..messages {
            socket.read_exact(&mut data).await?;
        }
        Ok::<_, std::io::Error>(Instant::now())
    });
    let (begin, batch) = (Instant::now(), [7; 64 * BYTES]);
    for sent in (0..messages).step_by(64) {
        socket.write_all(&batch[..(messages - sent).min(64) * BYTES]).await?;
    }
    let end = reading.await??;
    Ok(messages as f64 / (end - begin).as_secs_f64())
}
