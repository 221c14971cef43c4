//! The suite that every storage backend passes, over the calls of a hub of Rust.

use tidewire_testkit::homes::HomePlace;

use crate::hubs::Place;

tidewire_testkit::home_conformance!(crate::suite::home);

pub fn home() -> Option<HomePlace> {
    let place = Place::new();
    let home = place.node.home().wait().expect("the hub has a home");
    Some(HomePlace { home, keep: Box::new(place) })
}
