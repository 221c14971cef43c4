//! The pending answer of a call: a future, a blocking wait, or a callback.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::{HomeError, HomeErrorKind, HomeResult};

/// A place for a result, and who fills it.
pub fn answer<T>() -> (Teller<T>, Answer<T>) {
    let shared = Arc::new(Shared { state: Mutex::new(State::default()), done: Condvar::new() });
    (Teller(Some(Arc::clone(&shared))), Answer(Inner::Later(shared)))
}

/// The pending result of a call: `.await` it on any runtime, [`wait`](Answer::wait) for it on a
/// plain thread, or pass a callback to [`then`](Answer::then).
#[derive(derive_more::Debug)]
#[must_use = "nothing is known of the call before its answer was looked at"]
#[debug("Answer")]
pub struct Answer<T>(Inner<T>);

enum Inner<T> {
    Ready(Option<HomeResult<T>>),
    Later(Arc<Shared<T>>),
}

/// The sender of an answer. A sender that is dropped without a result sends
/// [`Closed`](HomeErrorKind::Closed).
#[derive(derive_more::Debug)]
#[debug("Teller")]
pub struct Teller<T>(Option<Arc<Shared<T>>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    result: Option<HomeResult<T>>,
    waker: Option<Waker>,
    callback: Option<Box<dyn FnOnce(HomeResult<T>) + Send>>,
    /// Runs when the answer is dropped before it has a result.
    dropped: Option<Box<dyn FnOnce() + Send>>,
    /// The answer was dropped: nobody awaits the result.
    unwanted: bool,
    /// A thread blocks until the result arrives. Each notification is a system call.
    blocks: bool,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self { result: None, waker: None, callback: None, dropped: None, unwanted: false, blocks: false }
    }
}

impl<T> Answer<T> {
    /// An answer that is there already.
    pub const fn ready(result: HomeResult<T>) -> Self {
        Self(Inner::Ready(Some(result)))
    }

    /// Blocks this thread until the result arrives.
    ///
    /// # Errors
    ///
    /// The error of the call.
    pub fn wait(mut self) -> HomeResult<T> {
        match &mut self.0 {
            Inner::Ready(result) => result.take().unwrap_or_else(|| Err(already_taken())),
            Inner::Later(shared) => {
                let mut state = shared.lock();
                state.blocks = true;
                loop {
                    match state.result.take() {
                        Some(result) => return result,
                        None => state = shared.done.wait(state).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            }
        }
    }

    /// Blocks this thread until the answer is there, at most so long. `Err(self)`: it is not there
    /// yet.
    ///
    /// # Errors
    ///
    /// The answer itself, to be waited for again.
    pub fn wait_for(mut self, timeout: Duration) -> Result<HomeResult<T>, Self> {
        let found = match &mut self.0 {
            Inner::Ready(result) => Some(result.take().unwrap_or_else(|| Err(already_taken()))),
            Inner::Later(shared) => {
                let mut state = shared.lock();
                state.blocks = true;
                let waited = shared.done.wait_timeout_while(state, timeout, |state| state.result.is_none());
                waited.unwrap_or_else(PoisonError::into_inner).0.result.take()
            }
        };
        found.ok_or(self)
    }

    /// Calls back when the answer is there: at once on this thread if it is there already, else on
    /// the thread that tells. The callback must be short, and must not block.
    pub fn then(mut self, callback: impl FnOnce(HomeResult<T>) + Send + 'static) {
        let result = match &mut self.0 {
            Inner::Ready(result) => result.take(),
            Inner::Later(shared) => {
                let mut state = shared.lock();
                match state.result.take() {
                    Some(result) => Some(result),
                    None => {
                        state.callback = Some(Box::new(callback));
                        return;
                    }
                }
            }
        };
        callback(result.unwrap_or_else(|| Err(already_taken())));
    }
}

impl<T: Send + 'static> Answer<T> {
    /// The same answer with its value changed.
    pub fn map<U: Send + 'static>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Answer<U> {
        let (teller, answer) = answer();
        self.then(move |result| drop(teller.tell(result.map(change))));
        answer
    }
}

impl<T> Future for Answer<T> {
    type Output = HomeResult<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Inner::Ready(result) => Poll::Ready(result.take().unwrap_or_else(|| Err(already_taken()))),
            Inner::Later(shared) => {
                let mut state = shared.lock();
                match state.result.take() {
                    Some(result) => Poll::Ready(result),
                    None => {
                        state.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            }
        }
    }
}

// A result is moved out whole, never pinned.
impl<T> Unpin for Answer<T> {}

impl<T> Answer<T> {
    /// Stops waiting, and returns the result if it has arrived. The sender gets a later result
    /// back.
    pub(super) fn give_up(&mut self) -> Option<HomeResult<T>> {
        match &mut self.0 {
            Inner::Ready(result) => result.take(),
            Inner::Later(shared) => {
                let mut state = shared.lock();
                state.unwanted = state.callback.is_none();
                let dropped = if state.unwanted { state.dropped.take() } else { None };
                let result = state.result.take();
                drop(state);
                if let Some(dropped) = dropped {
                    dropped();
                }
                result
            }
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl<T> Teller<T> {
    /// Fills the answer with the result.
    ///
    /// # Errors
    ///
    /// The result, if the answer was dropped.
    pub fn tell(mut self, result: HomeResult<T>) -> Result<(), HomeResult<T>> {
        self.0.take().map_or(Ok(()), |shared| shared.tell(result))
    }

    /// False if the answer was dropped, so that nobody would see a result.
    pub fn is_wanted(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| !shared.lock().unwanted)
    }

    /// Registers a function that runs when the answer is dropped before it has a result; at once if
    /// it was dropped already. A remote call is cancelled then. The function runs on the thread
    /// that drops the answer, and must be short.
    pub fn when_dropped(&self, run: impl FnOnce() + Send + 'static) {
        let Some(shared) = &self.0 else { return };
        let mut state = shared.lock();
        if !state.unwanted {
            state.dropped = Some(Box::new(run));
            return;
        }
        drop(state);
        run();
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            let text = "the home ended before it answered; what was called may have happened: open it again and look";
            drop(shared.tell(Err(HomeError::new(HomeErrorKind::Closed, text))));
        }
    }
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, result: HomeResult<T>) -> Result<(), HomeResult<T>> {
        let mut state = self.lock();
        if state.unwanted {
            return Err(result);
        }
        // Callbacks and wakers run without the lock: they may look at this answer again.
        let dropped = state.dropped.take();
        if let Some(callback) = state.callback.take() {
            drop((state, dropped));
            callback(result);
            return Ok(());
        }
        state.result = Some(result);
        let (waker, blocks) = (state.waker.take(), state.blocks);
        drop((state, dropped));
        if blocks {
            self.done.notify_all();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

fn already_taken() -> HomeError {
    HomeError::new(HomeErrorKind::Invalid, "answer: its result was taken before; look at it once")
}
