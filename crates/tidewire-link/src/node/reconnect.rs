//! Main loop of a link over a socket: it reads, watches deadlines, and joins again after a loss.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidewire_core::backoff::Backoff;
use tidewire_core::link::session::{Fault, Greeting, Session};
use tidewire_proto::generated::errors::ErrorCode;
use tokio::io::Interest;

use super::Shared;
use super::connection::{Connection, Transport};
use crate::clock::{instant, now_us};
use crate::frame_reader::{FrameReader, ReadProgress};
use crate::socket::Socket;
use crate::socket::async_stream::AsyncStream;
use crate::socket::layered_stream::LayeredStream;
use crate::socket::raw_stream::RawStream;
use crate::tls::Untrusted;

/// Most reads at a heartbeat.
const CATCH_UP_READS: usize = 16;

/// Looks after a link over a socket: reads it, watches the time, and joins again when it is lost.
pub(super) async fn keep(shared: Arc<Shared>, socket: Socket) {
    let mut socket = Some(socket);
    let mut backoff = Backoff::new(
        shared.greeting.backoff_ms.0.saturating_mul(1_000),
        shared.greeting.backoff_ms.1.saturating_mul(1_000),
        now_us() ^ Arc::as_ptr(&shared) as u64,
    );
    loop {
        if let Some(socket) = socket.take() {
            let (epoch, began_us) = (shared.state.lock().epoch, now_us());
            let reason = match Connection::with_socket(socket, shared.greeting.frame_bytes, epoch) {
                Ok(connection) => shared.go(Arc::new(connection)).await,
                Err(_) => connection_closed(),
            };
            if shared.state.lock().ended {
                return;
            }
            let first = shared.state.lock().welcome.take();
            let was_joined = shared.state.lock().joined.is_some();
            shared.lost();
            if let Some(first) = first {
                // The link never joined: the caller of the join gets the reason, and decides.
                let _ = first.send(Err(reason));
                return;
            }
            if was_joined {
                // A hub that takes the node in and loses it at once is not called without a pause.
                backoff.reset_after(now_us() - began_us);
                (shared.log)(&format!("the link is lost: {}", String::from(&reason)));
            } else if let Fault::Told { text, .. } = &reason {
                (shared.log)(&format!("the hub does not take this node in again: {text}"));
            }
        }
        if !shared.state.lock().comes_back() {
            return;
        }
        let wait = Duration::from_micros(backoff.next_delay_us());
        tokio::select! {
            () = shared.ends.notified() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let Some(address) = &shared.address else { return };
        let connected = tokio::select! {
            () = shared.ends.notified() => return,
            connected = Socket::connect(address, shared.greeting.frame_bytes) => connected,
        };
        if let Ok(connected) = connected
            && shared.begin_again()
        {
            socket = Some(connected);
        }
    }
}

/// Keeps a connection until it can't go on, and says why.
async fn run(shared: &Arc<Shared>, connection: &Connection) -> Fault {
    let ended = match &connection.kind {
        Transport::Plain(plain) => run_plain(shared, connection, plain).await,
        Transport::Layered(layered) => run_layered(shared, connection, layered).await,
        Transport::Local(_) => Ok(()),
    };
    ended.err().or_else(|| connection.turn.fault()).unwrap_or_else(connection_closed)
}

async fn run_plain(shared: &Arc<Shared>, connection: &Connection, plain: &RawStream) -> Result<(), Fault> {
    let (mut watched, mut full) = (AsyncStream::default(), false);
    let check_us = shared.greeting.heartbeat_ms * 500;
    let mut next_check_us = now_us() + check_us;
    loop {
        // Until it sleeps, whatever is due sooner wakes it.
        shared.sleeps_until_us.store(u64::MAX, Ordering::Release);
        let due = shared.state.lock().session.next_us();
        // A waiter off the loop may have gone: the loop is asked again now and then.
        let next = if shared.loop_thread.load(Ordering::Acquire) != 0 && connection.turn.is_to_offer() {
            due.min(next_check_us)
        } else {
            due
        };
        let reads = connection.turn.is_of_links() && !shared.is_paused();
        shared.sleeps_until_us.store(next, Ordering::Release);
        tokio::select! {
            biased;
            () = connection.end.notified() => return shared.last_words(connection),
            () = connection.turn.changed.notified() => {}
            () = shared.wakeup.notified() => shared.flush_requested(),
            () = connection.writing.full.notified(), if !full => full = true,
            ready = watched.ready(plain, reads, full) => {
                ready.map_err(|_| connection_closed())?;
                let mut done = Ok(());
                if full {
                    watched.act(Interest::WRITABLE, || {
                        full = false;
                        done = shared.resume(connection);
                        Err(io::ErrorKind::WouldBlock.into())
                    });
                    if done.is_err() {
                        return shared.last_words(connection);
                    }
                }
                let mut filled = Ok(ReadProgress::All);
                if reads {
                    watched.act(Interest::READABLE, || {
                        filled = connection.read(shared);
                        let all = matches!(filled, Ok(ReadProgress::All));
                        if all { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
                    });
                    filled?;
                }
            }
            () = tokio::task::yield_now(), if shared.has_placed() => shared.work_on_next_placed(connection),
            () = tokio::time::sleep_until(instant(next).into()) => {
                shared.catch_up(connection)?;
                shared.tick()?;
                shared.offer();
                next_check_us = now_us() + check_us;
            }
        }
    }
}

async fn run_layered(shared: &Arc<Shared>, connection: &Connection, layered: &LayeredStream) -> Result<(), Fault> {
    let mut reading = FrameReader::new(shared.greeting.frame_bytes);
    let mut full = false;
    loop {
        let next = shared.state.lock().session.next_us();
        tokio::select! {
            biased;
            () = connection.end.notified() => return last_words_under(shared, layered, &mut reading),
            () = connection.turn.changed.notified() => {}
            () = shared.wakeup.notified() => shared.flush_requested(),
            () = connection.writing.full.notified(), if !full => full = true,
            ready = layered.stream().writable(), if full => {
                full = false;
                ready.map_err(|_| connection_closed())?;
                if shared.resume(connection).is_err() {
                    return last_words_under(shared, layered, &mut reading);
                }
            }
            ready = layered.stream().readable(), if !shared.is_paused() => {
                ready.map_err(|_| connection_closed())?;
                if read_layered(shared, layered, &mut reading)? == ReadProgress::Closed {
                    return Ok(());
                }
            }
            () = tokio::task::yield_now(), if shared.has_placed() => shared.work_on_next_placed(connection),
            () = tokio::time::sleep_until(instant(next).into()) => shared.tick()?,
        }
    }
}

/// Reads what there is. Nothing at present is all that there is.
fn read_layered(
    shared: &Arc<Shared>,
    layered: &LayeredStream,
    reading: &mut FrameReader,
) -> Result<ReadProgress, Fault> {
    match reading.fill(|spare| layered.try_read(spare)) {
        Ok(ReadProgress::Closed) => Ok(ReadProgress::Closed),
        Ok(filled) => shared.read(reading).map(|()| filled),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadProgress::All),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let distrusted = error.get_ref().is_some_and(|inner| inner.is::<Untrusted>());
            let code = if distrusted { ErrorCode::InvalidArgument } else { ErrorCode::WireError };
            Err(Fault::Told { number: code.number(), text: error.to_string() })
        }
        Err(_) => Ok(ReadProgress::Closed),
    }
}

/// As [`Shared::last_words`], of a socket under TLS or WebSocket.
fn last_words_under(shared: &Arc<Shared>, layered: &LayeredStream, reading: &mut FrameReader) -> Result<(), Fault> {
    for _ in 0..CATCH_UP_READS {
        if shared.state.lock().ended || read_layered(shared, layered, reading)? != ReadProgress::Some {
            break;
        }
    }
    Ok(())
}

pub(super) fn connection_closed() -> Fault {
    Fault::Told { number: ErrorCode::LinkLost.number(), text: "the hub closed the connection".to_owned() }
}

impl Shared {
    /// Goes on with writing.
    fn resume(&self, connection: &Connection) -> Result<(), Fault> {
        let resumed =
            connection.writing.resume(|burst| self.take(connection, burst), |burst| self.write(connection, burst));
        self.let_write();
        self.idle.tell();
        resumed.map_err(|_| connection_closed())
    }

    /// Reads what has come, although it may be the turn of a loop: it may be busy, and the hub is
    /// not silent then.
    fn catch_up(self: &Arc<Self>, connection: &Connection) -> Result<(), Fault> {
        for _ in 0..CATCH_UP_READS {
            if self.is_paused() || connection.read(self)? != ReadProgress::Some {
                break;
            }
        }
        Ok(())
    }

    /// Nothing can be written any more. The hub may have said why before it closed.
    fn last_words(self: &Arc<Self>, connection: &Connection) -> Result<(), Fault> {
        if self.state.lock().ended { Ok(()) } else { self.catch_up(connection) }
    }

    fn tick(&self) -> Result<(), Fault> {
        let now = now_us();
        self.tell_alive(now);
        self.tidy(now);
        let mut state = self.state.lock();
        if self.is_paused() {
            state.session.deaf(now);
        }
        let ticked = state.session.tick(now);
        drop(state);
        self.flush();
        ticked
    }

    /// Tells callers that their calls are still at work.
    pub(super) fn tell_alive(&self, now: u64) {
        if self.state.lock().session.is_telling_due(now) {
            let blocked_ms = self.pulse.lock().as_ref().map_or(0, |pulse| pulse());
            self.state.lock().session.still_at_work(blocked_ms, now);
        }
    }

    /// Lets go of shared memory that nobody uses.
    pub(super) fn tidy(&self, now: u64) {
        if let Some(memory) = &self.memory {
            memory.release(now);
        }
    }

    pub(super) fn go_by(&self, connection: Arc<Connection>) {
        let (far, near) = self.greeting.compress_bytes;
        let from = if connection.is_near() { near } else { far };
        self.compressed_from.store(if from == 0 { usize::MAX } else { from }, Ordering::Relaxed);
        *self.connection.lock() = Some(connection);
    }

    /// Runs one connection until it ends, and returns the reason.
    async fn go(self: &Arc<Self>, connection: Arc<Connection>) -> Fault {
        self.go_by(Arc::clone(&connection));
        self.flush();
        self.offer();
        let reason = run(self, &connection).await;
        *self.connection.lock() = None;
        connection.close();
        reason
    }

    /// A new session, for a new connection. False: the link has been ended, or its node leaves.
    pub(super) fn begin_again(&self) -> bool {
        let mut state = self.state.lock();
        let greeting = Greeting { resume: state.resume.clone(), ..self.greeting.clone() };
        let Ok(session) = Session::join(&greeting, now_us()) else { return false };
        state.session = session;
        state.epoch = state.epoch.wrapping_add(1);
        // Payloads to place in shared memory, and to read there, were lost with the connection.
        self.lays.store(false, Ordering::Release);
        self.placed.lock().clear();
        state.comes_back()
    }

    /// Tells the hub which rule it broke.
    pub(super) fn refuse(&self, fault: &Fault) {
        if let Fault::Wire(error) = fault {
            self.state.lock().session.close(error.code(), &error.to_string());
            self.flush();
        }
    }
}
