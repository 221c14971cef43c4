//! The binding of `tidewire` for Python: conversions and calls, no behaviour of its own.

#![allow(missing_docs)]

mod actors;
mod arguments;
mod campaigns;
mod change_counter;
mod config;
mod errors;
mod interpreter;
mod link;
mod pending;
mod services;
mod streams;
mod values;

use pyo3::prelude::*;

// Not tried without the interpreter lock: a free-threaded interpreter turns the lock on for it.
#[pymodule(gil_used = true)]
fn _tidewire(module: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::start(module.py())?;
    module.add_class::<actors::engine::Engine>()?;
    module.add_class::<actors::actor::ActorRef>()?;
    module.add_class::<actors::context::Context>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<services::balancer::Balancer>()?;
    module.add_class::<services::balancer::CallLoad>()?;
    module.add_class::<services::admission::Admission>()?;
    module.add_class::<services::retry::Retry>()?;
    module.add_class::<services::call_counters::CallCounters>()?;
    module.add_class::<services::thread_workers::ThreadWorkers>()?;
    module.add_class::<services::thread_workers::WorkerCall>()?;
    module.add_class::<actors::timer::Timer>()?;
    module.add_class::<actors::subscription::Subscription>()?;
    module.add_class::<actors::bridge::Bridge>()?;
    module.add_class::<actors::coroutine_loop::CoroutineLoop>()?;
    module.add_class::<link::Hub>()?;
    module.add_class::<link::Listening>()?;
    module.add_class::<link::Link>()?;
    module.add_class::<link::LinkSubscription>()?;
    module.add_class::<change_counter::PyChangeCounter>()?;
    module.add_class::<actors::idle::Mark>()?;
    module.add_class::<campaigns::Philox>()?;
    module.add_class::<campaigns::Run>()?;
    module.add_class::<campaigns::CommonDraws>()?;
    module.add_class::<campaigns::CampaignStore>()?;
    module.add_class::<campaigns::CampaignWorker>()?;
    module.add_class::<streams::StreamHome>()?;
    module.add_class::<link::HomeServer>()?;
    module.add_class::<streams::stream_worker::StreamWorker>()?;
    module.add_class::<streams::reader::StreamReader>()?;
    module.add_class::<streams::publisher::PublishQueue>()?;
    module.add_class::<streams::publisher::StreamPublisher>()?;
    module.add_class::<streams::durable_subscription::DeliveryWorker>()?;
    module.add_class::<streams::durable_subscription::EventDelivery>()?;
    module.add_class::<streams::lease::HeldLease>()?;
    module.add_class::<streams::inboxes::AgentInbox>()?;
    module.add_class::<streams::command_worker::CommandAttempt>()?;
    module.add_function(wrap_pyfunction!(streams::check_folder, module)?)?;
    module.add_function(wrap_pyfunction!(streams::salvage_folder, module)?)?;
    module.add_function(wrap_pyfunction!(campaigns::end_with_parent, module)?)?;
    module.add_function(wrap_pyfunction!(link::sender_of_value, module)?)?;
    module.add_function(wrap_pyfunction!(link::check_address, module)?)?;
    module.add_function(wrap_pyfunction!(link::node_series, module)?)?;
    module.add_function(wrap_pyfunction!(link::node_metrics, module)?)?;
    module.add_function(wrap_pyfunction!(config::table_of_toml, module)?)?;
    module.add_class::<link::NativeMethod>()?;
    module.add_class::<link::Route>()?;
    module.add_class::<link::InstanceEndpoint>()?;
    module.add_class::<link::Bridge>()?;
    module.add_class::<link::Federation>()?;
    module.add_function(wrap_pyfunction!(link::federate, module)?)?;
    module.add_class::<link::Gateway>()?;
    module.add_class::<link::InboundCallRun>()?;
    module.add_class::<link::RemoteCall>()?;
    module.add_class::<link::RemoteMessage>()?;
    module.add_class::<link::RemoteStream>()?;
    module.add_class::<link::NativeStream>()?;
    module.add_class::<link::Directory>()?;
    module.add_class::<services::exports::Exports>()?;
    module.add_class::<services::imports::Imports>()?;
    module.add_function(wrap_pyfunction!(interpreter::exit::finish_threads, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::pause::deadlines, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::pause::advance_clock, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::pause::restore_time_of_day, module)?)?;
    module.add_function(wrap_pyfunction!(link::agent_subject, module)?)?;
    module.add_function(wrap_pyfunction!(link::release_problem, module)?)?;
    module.add_function(wrap_pyfunction!(link::service_subject, module)?)?;
    module.add_function(wrap_pyfunction!(actors::actor::send_blocking, module)?)?;
    module.add_function(wrap_pyfunction!(values::encode_value, module)?)?;
    module.add_function(wrap_pyfunction!(values::decode_value, module)?)?;
    module.add("BUILD", if cfg!(debug_assertions) { "fast" } else { "release" })?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
