//! Campaigns for Python: runs and their random numbers, the loop over a range, connections to
//! stores.

mod draws;
mod encode;
mod random;
mod range;
mod run;
mod status_page;
mod store;
mod worker;

pub use draws::CommonDraws;
pub use random::Philox;
pub use run::Run;
pub use store::CampaignStore;
pub use worker::CampaignWorker;

use pyo3::prelude::*;

/// Makes the system kill this process when its parent ends, where the system can. False if the
/// parent is gone already.
#[pyfunction]
pub fn end_with_parent(parent: i32) -> PyResult<bool> {
    #[cfg(target_os = "linux")]
    {
        let signal = rustix::process::Signal::KILL;
        rustix::process::set_parent_process_death_signal(Some(signal)).map_err(std::io::Error::from)?;
    }
    Ok(rustix::process::getppid().is_some_and(|now| now.as_raw_nonzero().get() == parent))
}
