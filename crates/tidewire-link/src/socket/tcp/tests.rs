//! Sockets of TCP.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::time::Duration;
use std::{net, thread};

use tokio::net::TcpListener;

use super::{READ_BYTES, TcpIo};

#[test]
fn frames_read_in_short_pieces_are_whole_and_no_buffer_stays() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("it can be started");
    let story = async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let place = listener.local_addr().expect("it has an address");
        let mut theirs = net::TcpStream::connect(place).expect("it listens");
        let (ours, _) = listener.accept().await.expect("it connects");
        let sent: Vec<u8> = (0..3 * READ_BYTES + 5).map(|at| (at % 251) as u8).collect();
        let (mut direct, writes) = (TcpIo::new(Arc::new(ours)), sent.clone());
        let write = thread::spawn(move || theirs.write_all(&writes).map(|()| theirs));
        let (mut came, mut piece) = (Vec::new(), [0; 1_000]);
        while came.len() < sent.len() {
            match direct.read(&mut piece) {
                Ok(count) => {
                    assert!(count > 0, "it ends before all has come");
                    came.extend_from_slice(&piece[..count]);
                }
                Err(_) => {
                    assert!(direct.peeked.is_none(), "it is told to wait with bytes inside");
                    direct.stream().readable().await.expect("it is open");
                }
            }
        }
        assert!(came == sent, "what came is something else");
        assert_eq!(direct.read_bytes(), sent.len() as u64);
        assert!(direct.peeked.is_none(), "it keeps a buffer");
        direct.allow(3);
        let mut theirs = write.join().expect("it ends").expect("it is read");
        theirs.write_all(b"12345").expect("it is open");
        direct.stream().readable().await.expect("it is open");
        assert_eq!(direct.read(&mut piece).expect("it is there"), 3);
        assert!(direct.read(&mut piece).is_err() && direct.is_spent());
    };
    let bounded = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), story).await });
    bounded.expect("all comes soon");
}
