//! Requests and replies through TCP, one after another and 64 in flight, beside a bare tokio socket
//! on the same computer: `cargo run --release -p tidewire-node --example echo [requests]`.
//!
//! A node calls a service of another node through a hub; all three are in this process and joined
//! by sockets. The bare socket has one hop in each direction where the nodes have two.

mod measuring;

use std::collections::VecDeque;
use std::time::Instant;

use measuring::{BYTES, Fault, figures, nodes, rounds};
use tidewire_node::values::Bytes;
use tidewire_node::{Client, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn main() -> Result<(), Fault> {
    let requests = measuring::count(20_000)?;
    let (_hub, server, caller) = nodes()?;
    server.serve(Service::new("echo").method("echo", &["data"], |_, data: Bytes| async move { Ok(data) })).wait()?;
    let client = caller.client("echo");
    println!("{requests} requests of {BYTES} B, rounds in turns; {}", measuring::machine());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut alone, mut many, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in rounds() {
        alone.push(in_flight(&client, 1, requests)?);
        many.push(in_flight(&client, 64, requests)?);
        bare.push(runtime.block_on(ping_pong(requests))?);
    }
    figures("tidewire, one after another", "requests/s", &mut alone);
    figures("tidewire, 64 in flight", "requests/s", &mut many);
    figures("bare tokio socket, one after another", "requests/s", &mut bare);
    Ok(())
}

/// Requests a second with so many in flight.
fn in_flight(client: &Client, width: usize, requests: usize) -> Result<f64, Fault> {
    let data = Bytes(vec![7; BYTES]);
    let begin = Instant::now();
    let mut calls = VecDeque::with_capacity(width);
    for _ in 0..requests {
        if calls.len() == width {
            finish(calls.pop_front())?;
        }
        calls.push_back(client.call::<Bytes>("echo", &data));
    }
    while !calls.is_empty() {
        finish(calls.pop_front())?;
    }
    Ok(requests as f64 / begin.elapsed().as_secs_f64())
}

fn finish(call: Option<tidewire_node::Call<Bytes>>) -> Result<(), Fault> {
    let reply = call.ok_or("no call is under way")?.wait()?;
    if reply.len() == BYTES { Ok(()) } else { Err("the reply is not what was sent".into()) }
}

/// Requests a second over a socket, with a task of the same runtime on the other side.
async fn ping_pong(requests: usize) -> Result<f64, Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let mut socket = TcpStream::connect(listener.local_addr()?).await?;
    socket.set_nodelay(true)?;
    let other = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        let mut data = [0; BYTES];
        while socket.read_exact(&mut data).await.is_ok() {
            socket.write_all(&data).await?;
        }
        Ok::<_, std::io::Error>(())
    });
    let (begin, mut data) = (Instant::now(), [7; BYTES]);
    for _ in 0..requests {
        socket.write_all(&data).await?;
        socket.read_exact(&mut data).await?;
    }
    let rate = requests as f64 / begin.elapsed().as_secs_f64();
    drop(socket);
    other.await??;
    Ok(rate)
}
