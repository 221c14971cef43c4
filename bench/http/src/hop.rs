//! A socket hop as small as one can be: frames of a length, a number and bytes, many at once over
//! one connection, gathered into one write.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

type Frame = (u64, Vec<u8>);
type Waiting = &'static Mutex<HashMap<u64, oneshot::Sender<Vec<u8>>>>;

/// One side of a hop.
pub struct Hop {
    send: mpsc::Sender<Frame>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Hop {
    pub async fn connect(place: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(place).await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let (send, frames) = mpsc::channel(1_024);
        let waiting: Waiting = Box::leak(Box::default());
        tokio::spawn(write_all(write, frames));
        tokio::spawn(async move {
            let mut read = BufReader::with_capacity(65_536, read);
            while let Ok((number, bytes)) = next(&mut read).await {
                if let Some(waits) = waiting.lock().unwrap().remove(&number) {
                    let _ = waits.send(bytes);
                }
            }
        });
        Ok(Self { send, waiting, next: AtomicU64::new(0) })
    }

    pub async fn echo(&self, bytes: Vec<u8>) -> Vec<u8> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (told, back) = oneshot::channel();
        self.waiting.lock().unwrap().insert(number, told);
        let _ = self.send.send((number, bytes)).await;
        back.await.unwrap_or_default()
    }
}

/// The other side: sends back what comes.
pub async fn serve() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (read, write) = stream.into_split();
        let (send, frames) = mpsc::channel(1_024);
        tokio::spawn(write_all(write, frames));
        tokio::spawn(async move {
            let mut read = BufReader::with_capacity(65_536, read);
            while let Ok(frame) = next(&mut read).await {
                if send.send(frame).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn next(read: &mut BufReader<OwnedReadHalf>) -> io::Result<Frame> {
    let (length, number) = (read.read_u32_le().await?, read.read_u64_le().await?);
    let mut bytes = vec![0; length as usize];
    read.read_exact(&mut bytes).await?;
    Ok((number, bytes))
}

async fn write_all(mut write: OwnedWriteHalf, mut frames: mpsc::Receiver<Frame>) {
    let (mut some, mut out) = (Vec::new(), Vec::new());
    while frames.recv_many(&mut some, 256).await > 0 {
        out.clear();
        for (number, bytes) in some.drain(..) {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&bytes);
        }
        if write.write_all(&out).await.is_err() {
            return;
        }
    }
}
