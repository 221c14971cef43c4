//! A wait that ends with time, or with news.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use pyo3::prelude::*;
use tidewire_engine::EngineHandle;
use tidewire_engine::raw::Mutex;
use tidewire_engine::raw::{Fire, Watch};

use crate::attach::attach;

/// Rings once.
#[derive(Default)]
struct Bell {
    state: Mutex<(bool, Option<Waker>)>,
}

impl Fire for Bell {
    fn fire(self: Arc<Self>) {
        let waker = {
            let mut state = self.state.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Something that happens again and again, and that pauses end with.
#[pyclass(frozen, module = "tidewire._tidewire")]
pub struct News {
    board: Arc<Mutex<Board>>,
}

#[derive(Default)]
struct Board {
    count: u64,
    next: u64,
    bells: HashMap<u64, Arc<Bell>>,
}

#[pymethods]
impl News {
    #[new]
    fn new() -> Self {
        Self { board: Arc::default() }
    }

    /// How often there were news.
    #[getter]
    fn count(&self) -> u64 {
        self.board.lock().count
    }

    /// Says that there are: the pauses that wait for them end.
    fn ring(&self) {
        let bells = {
            let mut board = self.board.lock();
            board.count += 1;
            std::mem::take(&mut board.bells)
        };
        bells.into_values().for_each(Fire::fire);
    }
}

/// Is done at a time, or with news. Dropping it forgets about it.
pub struct Pause {
    bell: Arc<Bell>,
    at: Instant,
    engine: EngineHandle,
    watch: Option<Watch>,
    hung: Option<(Arc<Mutex<Board>>, u64)>,
}

impl Pause {
    pub fn new(at: Instant, engine: EngineHandle) -> Self {
        Self { bell: Arc::default(), at, engine, watch: None, hung: None }
    }

    /// Has it end with news as well: at once, if there were others than these.
    pub fn or_with(mut self, news: &News, seen: u64) -> Self {
        let mut board = news.board.lock();
        if board.count == seen {
            let number = board.next;
            board.next += 1;
            board.bells.insert(number, Arc::clone(&self.bell));
            self.hung = Some((Arc::clone(&news.board), number));
        } else {
            self.bell.state.lock().0 = true;
        }
        drop(board);
        self
    }
}

impl Future for Pause {
    type Output = PyResult<Py<PyAny>>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        {
            let mut state = self.bell.state.lock();
            if state.0 {
                return Poll::Ready(Ok(attach(|py| py.None())));
            }
            state.1 = Some(context.waker().clone());
        }
        if self.watch.is_none() {
            self.watch = Some(self.engine.watch(self.at, Arc::clone(&self.bell) as Arc<dyn Fire>));
        }
        Poll::Pending
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some((board, number)) = self.hung.take() {
            let bell = board.lock().bells.remove(&number);
            drop(bell);
        }
    }
}
