//! A bare socket of tokio between caller and service, without a hub: the floor for Rust. Forms:
//! tcp, unix.
//!
//! A frame is its length, the number of its request, and the payload. Frames that wait go out in
//! one write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::{no_crowd, no_hub};
use crate::Fault;
use crate::roles::{Options, Role, Service, announce, call};
use crate::workloads::Link;

const HEADER_BYTES: usize = 8;
const READ_BYTES: usize = 256 * 1024;
const QUEUE_FRAMES: usize = 1_024;
const ONE_WAY: u32 = 0;

type Frame = (u32, Bytes);

pub async fn run(options: &Options) -> Result<(), Fault> {
    let unix = options.form == "unix";
    match options.role {
        Role::Crowd => no_crowd(),
        Role::Hub => no_hub(),
        Role::Service if unix => serve_unix().await,
        Role::Service => serve_tcp().await,
        Role::Caller if unix => call(Caller::new(UnixStream::connect(&options.url).await?), options).await,
        Role::Caller => {
            let socket = TcpStream::connect(&options.url).await?;
            socket.set_nodelay(true)?;
            call(Caller::new(socket), options).await
        }
    }
}

async fn serve_tcp() -> Result<(), Fault> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = listener.local_addr()?.to_string();
    tokio::spawn(async move {
        let (socket, _) = listener.accept().await?;
        socket.set_nodelay(true)?;
        answer(socket).await
    });
    announce(&url).await
}

async fn serve_unix() -> Result<(), Fault> {
    let path = std::env::temp_dir().join(format!("rpc-bench-{}", std::process::id()));
    let listener = UnixListener::bind(&path)?;
    tokio::spawn(async move { answer(listener.accept().await?.0).await });
    let ended = announce(&path.to_string_lossy()).await;
    std::fs::remove_file(&path)?;
    ended
}

/// Answers what has come with one write, then reads on.
async fn answer(mut socket: impl AsyncRead + AsyncWrite + Unpin) -> Result<(), Fault> {
    let service = Service::default();
    let (mut input, mut output) = (BytesMut::with_capacity(READ_BYTES), BytesMut::new());
    while socket.read_buf(&mut input).await? > 0 {
        while let Some((number, data)) = next_frame(&mut input) {
            if number == ONE_WAY {
                service.take();
            } else {
                put_frame(&mut output, number, &service.echo(data));
            }
        }
        socket.write_all_buf(&mut output).await?;
    }
    Ok(())
}

#[derive(Clone)]
struct Caller {
    frames: mpsc::Sender<Frame>,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: u32,
    replies: HashMap<u32, oneshot::Sender<Bytes>>,
}

impl Caller {
    fn new(socket: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reading, writing) = tokio::io::split(socket);
        let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        tokio::spawn(write(writing, queue));
        tokio::spawn(read(reading, waiting.clone()));
        Self { frames, waiting }
    }

    fn expect_reply(&self) -> (u32, oneshot::Receiver<Bytes>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock().expect("nobody panics under this lock");
        waiting.last += 1;
        let number = waiting.last;
        waiting.replies.insert(number, sender);
        (number, receiver)
    }
}

impl Link for Caller {
    async fn echo(&self, data: Bytes) -> Result<Bytes, Fault> {
        let (number, reply) = self.expect_reply();
        self.frames.send((number, data)).await?;
        Ok(reply.await?)
    }

    async fn stream(&self, messages: Vec<Bytes>) -> Result<(), Fault> {
        for message in messages {
            self.frames.send((ONE_WAY, message)).await?;
        }
        Ok(())
    }
}

async fn write(mut socket: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Frame>) -> Result<(), Fault> {
    let (mut batch, mut output) = (Vec::new(), BytesMut::new());
    while queue.recv_many(&mut batch, QUEUE_FRAMES).await > 0 {
        for (number, data) in batch.drain(..) {
            put_frame(&mut output, number, &data);
        }
        socket.write_all_buf(&mut output).await?;
    }
    Ok(())
}

async fn read(mut socket: impl AsyncRead + Unpin, waiting: Arc<Mutex<Waiting>>) -> Result<(), Fault> {
    let mut input = BytesMut::with_capacity(READ_BYTES);
    while socket.read_buf(&mut input).await? > 0 {
        while let Some((number, data)) = next_frame(&mut input) {
            let reply = waiting.lock().expect("nobody panics under this lock").replies.remove(&number);
            // A request that was given up has nobody who waits for its reply.
            if let Some(reply) = reply {
                let _ = reply.send(data);
            }
        }
        input.reserve(READ_BYTES);
    }
    Ok(())
}

fn put_frame(output: &mut BytesMut, number: u32, data: &[u8]) {
    output.reserve(HEADER_BYTES + data.len());
    output.put_u32_le(data.len() as u32);
    output.put_u32_le(number);
    output.put_slice(data);
}

fn next_frame(input: &mut BytesMut) -> Option<Frame> {
    let length = input.get(..4).map(|mut head| head.get_u32_le() as usize)?;
    if input.len() < HEADER_BYTES + length {
        input.reserve(HEADER_BYTES + length - input.len());
        return None;
    }
    input.advance(4);
    let number = input.get_u32_le();
    Some((number, input.split_to(length).freeze()))
}
