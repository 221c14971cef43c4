//! Eclipse zenoh: a query and its reply, and publications one way. Forms: router (through a hub),
//! direct (from peer to peer).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use zenoh::pubsub::Publisher;
use zenoh::qos::CongestionControl;
use zenoh::query::{Querier, QueryTarget};
use zenoh::{Config, Session, Wait};

use super::{free_port, no_crowd};
use crate::Fault;
use crate::roles::{Options, Role, Service, announce, call};
use crate::workloads::Link;

const QUERY_TIMEOUT: Duration = Duration::from_secs(50);
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub async fn run(options: &Options) -> Result<(), Fault> {
    let direct = options.form == "direct";
    match options.role {
        Role::Crowd => no_crowd(),
        Role::Hub => {
            let url = own_url()?;
            let _session = open("router", &url, "").await?;
            announce(&url).await
        }
        Role::Service if direct => {
            let url = own_url()?;
            serve(open("peer", &url, "").await?, &url).await
        }
        Role::Service => serve(open("client", "", &options.url).await?, &options.url).await,
        Role::Caller => {
            let session = open(if direct { "peer" } else { "client" }, "", &options.url).await?;
            call(Caller::new(&session).await?, options).await
        }
    }
}

fn own_url() -> Result<String, Fault> {
    Ok(format!("tcp/127.0.0.1:{}", free_port()?))
}

/// Only what is named here takes part: nobody looks around in the network.
async fn open(mode: &str, listen: &str, connect: &str) -> Result<Session, Fault> {
    let places = |url: &str| if url.is_empty() { "[]".to_owned() } else { format!("[\"{url}\"]") };
    let mut config = Config::default();
    config.insert_json5("mode", &format!("\"{mode}\""))?;
    config.insert_json5("listen/endpoints", &places(listen))?;
    config.insert_json5("connect/endpoints", &places(connect))?;
    config.insert_json5("scouting/multicast/enabled", "false")?;
    config.insert_json5("scouting/gossip/enabled", "false")?;
    zenoh::open(config).await
}

async fn serve(session: Session, url: &str) -> Result<(), Fault> {
    let service = Arc::new(Service::default());
    let taking = service.clone();
    let answer = move |query: zenoh::query::Query| {
        let payload = query.payload().map(|payload| payload.to_bytes().into_owned()).unwrap_or_default();
        if let Err(fault) = query.reply("echo", service.echo(payload.into()).to_vec()).wait() {
            eprintln!("a reply could not be sent: {fault}");
        }
    };
    let _queryable = session.declare_queryable("echo").callback(answer).await?;
    let _subscriber = session.declare_subscriber("take").callback(move |_| taking.take()).await?;
    announce(url).await
}

#[derive(Clone)]
struct Caller {
    querier: Arc<Querier<'static>>,
    publisher: Arc<Publisher<'static>>,
}

impl Caller {
    /// Waits until the service and its subscriber are known here.
    async fn new(session: &Session) -> Result<Self, Fault> {
        let querier = session
            .declare_querier("echo")
            .target(QueryTarget::BestMatching)
            .congestion_control(CongestionControl::Block)
            .timeout(QUERY_TIMEOUT)
            .await?;
        let publisher = session.declare_publisher("take").congestion_control(CongestionControl::Block).await?;
        while !(querier.matching_status().await?.matching() && publisher.matching_status().await?.matching()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(Self { querier: Arc::new(querier), publisher: Arc::new(publisher) })
    }
}

impl Link for Caller {
    async fn echo(&self, data: Bytes) -> Result<Bytes, Fault> {
        let replies = self.querier.get().payload(data.to_vec()).await?;
        let reply = replies.recv_async().await?;
        let sample = reply.into_result().map_err(|error| format!("{error:?}"))?;
        Ok(Bytes::from(sample.payload().to_bytes().into_owned()))
    }

    async fn stream(&self, messages: Vec<Bytes>) -> Result<(), Fault> {
        for message in messages {
            self.publisher.put(message.to_vec()).await?;
        }
        Ok(())
    }
}
