/**
 * Code that a node loads on first use: its own services and subscriptions, streams, the hub's list
 * of services, and values of rare kinds.
 */
import { RARE_KINDS } from "./values/rare.js";
import { addRareKinds } from "./values/reader.js";

// As this refers to all that a page loads at first, bundlers make one file of that, which is a
// thirtieth smaller compressed than two.
export { ItemReader } from "./calls/item_reader.js";
export { resent } from "./calls/resend.js";
export { connect } from "./connect.js";
export { Directory } from "./discovery/directory.js";
export { watchServices } from "./discovery/service_watch.js";
export { Incoming } from "./services/inbound.js";
export { Clock, Commands, Lease, Store } from "./streams/store.js";

addRareKinds(RARE_KINDS);
