//! The binding of `tidewire` for Python: conversions and calls, no behaviour of its own.

#![allow(missing_docs)]

mod actor;
mod admission;
mod arguments;
mod asyncio;
mod attach;
mod balancer;
mod batch;
mod bridge;
mod campaigns;
mod commanding;
mod config;
mod context;
mod coroutine;
mod engine;
mod errors;
mod exports;
mod fork;
mod forked;
mod function;
mod held;
mod idle;
mod inboxes;
mod intake;
mod link;
mod message;
mod never_awaited;
mod news;
mod once;
mod pause;
mod pending;
mod present;
mod retry;
mod statistics;
mod steps;
mod streams;
mod subscribing;
mod subscription;
mod tally;
mod tenure;
mod timer;
mod values;
mod wait;

use pyo3::prelude::*;

#[pymodule]
fn _tidewire(module: &Bound<'_, PyModule>) -> PyResult<()> {
    forked::count()?;
    once::fill_foreign(module.py())?;
    module.add_class::<engine::Engine>()?;
    module.add_class::<actor::ActorRef>()?;
    module.add_class::<context::Context>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<balancer::Balancer>()?;
    module.add_class::<admission::Admission>()?;
    module.add_class::<retry::Retry>()?;
    module.add_class::<tally::CallTally>()?;
    module.add_class::<timer::Timer>()?;
    module.add_class::<subscription::Subscription>()?;
    module.add_class::<bridge::Bridge>()?;
    module.add_class::<intake::Intake>()?;
    module.add_class::<link::Hub>()?;
    module.add_class::<link::Listening>()?;
    module.add_class::<link::Link>()?;
    module.add_class::<link::LinkSubscription>()?;
    module.add_class::<news::Told>()?;
    module.add_class::<idle::Mark>()?;
    module.add_class::<campaigns::Philox>()?;
    module.add_class::<campaigns::Run>()?;
    module.add_class::<campaigns::CampaignStore>()?;
    module.add_class::<campaigns::CampaignWorker>()?;
    module.add_class::<streams::StreamHome>()?;
    module.add_class::<subscribing::DurableSubscription>()?;
    module.add_class::<tenure::Tenure>()?;
    module.add_class::<inboxes::AgentInbox>()?;
    module.add_class::<commanding::CommandLife>()?;
    module.add_class::<commanding::CommandPlaces>()?;
    module.add_function(wrap_pyfunction!(subscribing::patterns_overlap, module)?)?;
    module.add_function(wrap_pyfunction!(streams::home_error, module)?)?;
    module.add_function(wrap_pyfunction!(streams::check_folder, module)?)?;
    module.add_function(wrap_pyfunction!(streams::salvage_folder, module)?)?;
    module.add_function(wrap_pyfunction!(campaigns::end_with_parent, module)?)?;
    module.add_function(wrap_pyfunction!(link::sender_of_value, module)?)?;
    module.add_function(wrap_pyfunction!(link::check_address, module)?)?;
    module.add_function(wrap_pyfunction!(config::table_of_toml, module)?)?;
    module.add_class::<link::Calling>()?;
    module.add_class::<link::Route>()?;
    module.add_class::<link::Gate>()?;
    module.add_class::<link::Bridge>()?;
    module.add_class::<link::Gateway>()?;
    module.add_class::<link::Handling>()?;
    module.add_class::<link::RemoteCall>()?;
    module.add_class::<link::RemoteMessage>()?;
    module.add_class::<link::RemoteStream>()?;
    module.add_class::<link::Directory>()?;
    module.add_class::<exports::Exports>()?;
    module.add_function(wrap_pyfunction!(link::agent_subject, module)?)?;
    module.add_function(wrap_pyfunction!(attach::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(attach::after_fork_in_parent, module)?)?;
    module.add_function(wrap_pyfunction!(fork::after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(actor::send_blocking, module)?)?;
    module.add_function(wrap_pyfunction!(values::encode_value, module)?)?;
    module.add_function(wrap_pyfunction!(values::decode_value, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
