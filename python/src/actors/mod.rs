//! Actors of Python: their engine, handlers, messages and timers.

pub mod actor;
pub mod batch;
pub mod bridge;
pub mod context;
pub mod coroutine;
pub mod coroutine_loop;
pub mod current_actor;
pub mod engine;
pub mod function;
pub mod idle;
pub mod message;
pub mod statistics;
pub mod subscription;
pub mod timer;
