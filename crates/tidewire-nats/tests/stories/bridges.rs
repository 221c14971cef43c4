//! Stories of nodes with one number: a split cluster may have two, and a draw may give it twice.

use tidewire_link::{HubHandle, HubOptions, Runtime};
use tidewire_nats::{Bridge, BridgeError, BridgeOptions, Settings};
use tidewire_proto::generated::errors::ErrorCode;

use crate::servers::Server;

#[test]
fn of_two_nodes_with_one_number_the_first_keeps_it() {
    let Some(server) = Server::start("") else { return };
    let runtime = Runtime::start("hubs").unwrap();
    let join = |name: &str, number: u32| -> Result<(HubHandle, Bridge), BridgeError> {
        let hub = HubHandle::new(&runtime, HubOptions { number, ..HubOptions::new(name) }, |_| ());
        let settings = Settings::read(&server.url).unwrap();
        let bridge = Bridge::open(&hub, settings, BridgeOptions::new(name, number), |_, _| ())?;
        Ok((hub, bridge))
    };
    let number = BridgeOptions::draw_number();
    let (_hub, first) = join("first", number).unwrap();
    let error = join("second", number).map(drop).unwrap_err();
    assert_eq!(error.code(), ErrorCode::LinkLost);
    assert!(error.to_string().contains("node \"first\" joined before with the number"), "{error}");
    assert!(first.is_connected());
    join("second", BridgeOptions::draw_number()).map(drop).unwrap();
    server.end();
}
